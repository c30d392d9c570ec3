package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// snapshotSize is that of the snapshot a bootstrap begins with.
const snapshotSize = 64 << 10

// runBootstrap measures /bootstrap (extensions 3): a snapshot of 64 KiB, and
// Config.Total bytes of records after it. The records before it must not come.
func runBootstrap(ctx context.Context, r *run) error {
	s := r.newStream(r.name(0, 0), 1)
	err := r.eachConn(ctx, r.write, 1, func(c *conn, _ int) error { return r.put(c, s.path) })
	if err != nil {
		return err
	}
	if err := r.fill(ctx, s, r.cfg.Total); err != nil {
		return err
	}
	folded := s.sources[0].issued.Load()
	offset, err := r.readAll(ctx, s.readPath, "-1", func([]byte) {})
	if err != nil {
		return err
	}
	snapshot := bytes.Repeat([]byte("snapshot"), snapshotSize/8)
	if err := r.publish(ctx, s, offset, snapshot); err != nil {
		return err
	}
	if err := r.fill(ctx, s, r.cfg.Total); err != nil {
		return err
	}
	return r.loop(ctx, r.cfg.Readers, func(ctx context.Context, i int) (operation, error) {
		name := fmt.Sprintf("bootstrap %d", i)
		return func(int, int64) (int, error) {
			c := newChecker(name, r.record, r.cfg.ContentType, 1)
			c.next[0] = folded
			n, err := r.bootstrap(ctx, s, snapshot, c)
			if err != nil {
				return 0, err
			}
			r.verified(c.finish(s.sources))
			return n, nil
		}, nil
	})
}

func (r *run) publish(ctx context.Context, s *stream, offset string, snapshot []byte) error {
	to := "http://" + r.write.address + s.path + "/snapshot/" + url.PathEscape(offset)
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, to, bytes.NewReader(snapshot))
	if err != nil {
		return err
	}
	req.Host = r.write.host
	req.Header.Set("Content-Type", "application/octet-stream")
	res, err := r.http.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
		return fmt.Errorf("publishing a snapshot: %w", &statusError{"PUT", res.StatusCode, string(body)})
	}
	return nil
}

var errSnapshot = errors.New("the first part is not the snapshot that was published")

// bootstrap makes one request, and reads on where its answer is partial.
func (r *run) bootstrap(ctx context.Context, s *stream, snapshot []byte, c *checker) (int, error) {
	res, err := r.get(ctx, s.readPath+"/bootstrap")
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, &statusError{what: "bootstrap", status: res.StatusCode}
	}
	_, params, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return 0, fmt.Errorf("bootstrap: %w", err)
	}
	parts := multipart.NewReader(res.Body, params["boundary"])
	total := 0
	for i := 0; ; i++ {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("bootstrap: %w", err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return 0, fmt.Errorf("bootstrap: %w", err)
		}
		total += len(body)
		if i > 0 {
			c.feed(body)
		} else if !bytes.Equal(body, snapshot) {
			return 0, errSnapshot
		}
	}
	if strings.EqualFold(res.Header.Get("Stream-Up-To-Date"), "true") {
		return total, nil
	}
	_, err = r.readAll(ctx, s.readPath, res.Header.Get("Stream-Next-Offset"), func(p []byte) {
		total += len(p)
		c.feed(p)
	})
	return total, err
}
