package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// stream is one that the run made.
type stream struct {
	path string // at the writing target
	// readPath is that at the reading one.
	readPath string
	sources  []*source
}

// name is that of the i'th thing of the run, made by its j'th worker.
func (r *run) name(j, i int) string { return fmt.Sprintf("bench-%s-%d-%d", r.id, j, i) }

func (r *run) newStream(name string, sources int) *stream {
	s := &stream{path: r.write.prefix + name, readPath: r.read.prefix + name, sources: make([]*source, sources)}
	for i := range s.sources {
		s.sources[i] = &source{}
	}
	r.mu.Lock()
	r.streams = append(r.streams, s)
	r.mu.Unlock()
	return s
}

// createStreams makes n streams of some sources each.
func (r *run) createStreams(ctx context.Context, n, sources int) ([]*stream, error) {
	streams := make([]*stream, n)
	for i := range streams {
		streams[i] = r.newStream(r.name(0, i), sources)
	}
	return streams, r.eachConn(ctx, r.write, n, func(c *conn, i int) error {
		return r.put(c, streams[i].path)
	})
}

// put creates a stream.
func (r *run) put(c *conn, path string) error {
	res, err := c.do("PUT", r.head(r.write, "PUT", path, 0), nil, time.Now())
	if err != nil {
		return err
	}
	if res.status != http.StatusCreated {
		return &statusError{"create", res.status, string(res.body)}
	}
	return nil
}

// head is the head of a request with a body of length bytes.
func (r *run) head(t target, method, path string, length int, fields ...string) []byte {
	h := fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: %s\r\n", method, path, t.host)
	switch method {
	case "PUT", "POST":
		h = fmt.Appendf(h, "Content-Type: %s\r\nContent-Length: %d\r\n", r.cfg.ContentType, length)
	}
	for _, f := range fields {
		h = append(append(h, f...), "\r\n"...)
	}
	return append(h, "\r\n"...)
}

// eachConn calls f for 0 to n-1 over a few connections.
func (r *run) eachConn(ctx context.Context, t target, n int, f func(c *conn, i int) error) error {
	workers := min(n, maxSetup)
	return all(ctx, workers, func(ctx context.Context, w int) error {
		c, err := r.dial(ctx, t)
		if err != nil {
			return err
		}
		// The connection is replaced when it breaks; the last one is closed here.
		defer func() { c.close() }()
		for i := w; i < n; i += workers {
			if err := ctx.Err(); err != nil {
				return err
			}
			if c.dead {
				fresh, err := r.dial(ctx, t)
				if err != nil {
					return err
				}
				c = fresh // the old one is closed already
			}
			if err := f(c, i); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) dial(ctx context.Context, t target) (*conn, error) { return dial(ctx, t, r.cfg.Timeout) }

// deleteStreams removes what the run made.
func (r *run) deleteStreams(ctx context.Context) error {
	return r.eachConn(ctx, r.write, len(r.streams), func(c *conn, i int) error {
		res, err := c.do("DELETE", r.head(r.write, "DELETE", r.streams[i].path, 0), nil, time.Now())
		if err != nil {
			return err
		}
		switch res.status {
		case http.StatusOK, http.StatusNoContent, http.StatusNotFound, http.StatusGone:
			return nil
		}
		return &statusError{"delete", res.status, string(res.body)}
	})
}

// verifyStreams reads every stream back and compares it with what was written.
func (r *run) verifyStreams(ctx context.Context, streams []*stream) error {
	if r.cfg.NoVerify {
		return nil
	}
	r.say("verifying %d streams", len(streams))
	return each(ctx, len(streams), func(ctx context.Context, i int) error {
		s := streams[i]
		c := newChecker("read back "+s.readPath, r.record, r.cfg.ContentType, len(s.sources))
		if _, err := r.readAll(ctx, s.readPath, "-1", c.feed); err != nil {
			return err
		}
		r.verified(c.finish(s.sources))
		return nil
	})
}

var errNoProgress = errors.New("the stream is not up to date, and its offset does not move")

// readAll reads a stream from an offset until it is up to date, and returns the
// offset after it.
func (r *run) readAll(ctx context.Context, path, offset string, sink func([]byte)) (string, error) {
	buf := make([]byte, 256<<10)
	for {
		res, err := r.get(ctx, path+"?offset="+url.QueryEscape(offset)) //nolint:bodyclose // drain closes it
		if err != nil {
			return "", err
		}
		err = drain(res.Body, buf, sink)
		if err != nil {
			return "", fmt.Errorf("reading %s: %w", path, err)
		}
		if res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("reading %s: %s", path, res.Status)
		}
		next := res.Header.Get("Stream-Next-Offset")
		if strings.EqualFold(res.Header.Get("Stream-Up-To-Date"), "true") {
			return next, nil
		}
		if next == "" || next == offset {
			return "", fmt.Errorf("reading %s at %q: %w", path, offset, errNoProgress)
		}
		offset = next
	}
}

func (r *run) get(ctx context.Context, pathAndQuery string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.read.url(pathAndQuery), nil)
	if err != nil {
		return nil, err
	}
	req.Host = r.read.host
	return r.http.Do(req)
}

// drain reads a body to its end and closes it.
func drain(body io.ReadCloser, buf []byte, sink func([]byte)) (err error) {
	defer func() { err = errors.Join(err, body.Close()) }()
	for {
		n, err := body.Read(buf)
		if n > 0 {
			sink(buf[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
