package main

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
	"sync"
	"time"
)

// mirror follows one stream. run is its only writer; copyState may be called
// from anywhere.
type mirror struct {
	// streams are the URLs of the stream, one a frontend; at is the one in use.
	streams []string
	at      int
	client  *http.Client
	// changed is called after every change of the state; it may be nil.
	changed func(state, string)

	mu          sync.Mutex
	state       state
	offset      string // of the next byte; empty before a bootstrap
	incarnation string
	rest        []byte // of a message whose end the last response did not hold
	// bootstraps counts how often the state was built anew.
	bootstraps int
}

func newMirror(streams ...string) *mirror {
	return &mirror{streams: streams, client: &http.Client{Timeout: 90 * time.Second}, state: state{}}
}

// copyState returns the state and the offset it is of.
func (m *mirror) copyState() (state, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.clone(), m.offset
}

// errRebuild says that what is known of the stream is of no more use.
var errRebuild = errors.New("rebuild")

// run follows the stream until ctx ends. Every fault is met by trying the next
// frontend, or by building the state anew; none is final.
func (m *mirror) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.step(ctx)
		switch {
		case err == nil:
		case errors.Is(err, errRebuild):
			m.mu.Lock()
			m.offset, m.incarnation, m.rest = "", "", nil
			m.mu.Unlock()
		default:
			m.at = (m.at + 1) % len(m.streams)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

func (m *mirror) step(ctx context.Context) error {
	if m.offset == "" {
		return m.bootstrap(ctx)
	}
	return m.follow(ctx)
}

func (m *mirror) get(ctx context.Context, suffix string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.streams[m.at]+suffix, nil)
	if err != nil {
		return nil, err
	}
	if m.incarnation != "" {
		req.Header.Set("Stream-Incarnation", m.incarnation)
	}
	req.Header.Set("Accept", "application/x-ndjson")
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusOK, http.StatusNoContent:
		return resp, nil
	case http.StatusGone, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		err = errRebuild
	case http.StatusNotFound:
		// Deleted, or not made yet: either way there is nothing to keep.
		err = errRebuild
		if m.offset == "" {
			err = errors.New("there is no stream yet")
		}
	default:
		err = fmt.Errorf("%s answered %s", m.streams[m.at], resp.Status)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

// bootstrap builds the state from the snapshot and the updates after it.
func (m *mirror) bootstrap(ctx context.Context) error {
	resp, err := m.get(ctx, "/bootstrap")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, params, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return err
	}
	var fresh state
	for parts := multipart.NewReader(resp.Body, params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return err
		}
		if fresh == nil {
			if fresh, err = restore(body); err != nil {
				return err
			}
			continue
		}
		if err := fresh.apply(bytes.TrimSuffix(body, []byte{'\n'})); err != nil {
			return err
		}
	}
	if fresh == nil {
		return errors.New("a bootstrap without a first part")
	}
	m.set(fresh, nil, resp.Header)
	m.mu.Lock()
	m.bootstraps++
	m.mu.Unlock()
	return nil
}

// set makes a new state the current one.
func (m *mirror) set(s state, rest []byte, h http.Header) {
	m.mu.Lock()
	m.state, m.rest = s, rest
	m.offset, m.incarnation = h.Get("Stream-Next-Offset"), h.Get("Stream-Incarnation")
	offset := m.offset
	m.mu.Unlock()
	if m.changed != nil {
		m.changed(s.clone(), offset)
	}
}

// follow waits for what comes next. The state changes only once a response has
// arrived whole, together with the offset: a response that was cut off is
// asked for again.
func (m *mirror) follow(ctx context.Context) error {
	resp, err := m.get(ctx, "?live=long-poll&timeout_ms=20000&offset="+url.QueryEscape(m.offset))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNoContent {
		return nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	// A response may end inside a message; the rest comes with the next one.
	body = append(bytes.Clone(m.rest), body...)
	next, _ := m.copyState()
	for {
		line, rest, whole := bytes.Cut(body, []byte{'\n'})
		if !whole {
			break
		}
		if err := next.apply(line); err != nil {
			return err
		}
		body = rest
	}
	m.set(next, body, resp.Header)
	return nil
}
