package bench

import (
	"context"
	"net/http"
	"time"
)

// runCreate makes a new, empty stream in each operation, and then asks for the
// metadata of those it made.
func runCreate(ctx context.Context, r *run) error {
	made := make([][]*stream, r.cfg.Writers)
	err := r.loop(ctx, r.cfg.Writers, func(ctx context.Context, i int) (operation, error) {
		w := &writer{run: r}
		if err := w.redial(ctx); err != nil {
			return nil, err
		}
		return func(k int, _ int64) (int, error) {
			if w.conn.dead {
				if err := w.redial(ctx); err != nil {
					return 0, err
				}
			}
			s := r.newStream(r.name(i, k), 0)
			res, err := w.conn.do("PUT", r.head(r.write, "PUT", s.path, 0), nil, time.Now())
			switch {
			case err != nil:
				return 0, r.transport(ctx, err)
			case res.status != http.StatusCreated:
				return 0, &statusError{"create", res.status, string(res.body)}
			}
			made[i] = append(made[i], s)
			return 0, nil
		}, nil
	})
	if err != nil || r.cfg.NoVerify {
		return err
	}
	return r.verifyCreated(ctx, made)
}

// maxHeads bounds how many of the created streams are looked at.
const maxHeads = 10_000

func (r *run) verifyCreated(ctx context.Context, made [][]*stream) error {
	var streams []*stream
	for _, m := range made {
		streams = append(streams, m...)
	}
	n := min(len(streams), maxHeads)
	r.say("verifying %d of %d streams", n, len(streams))
	return r.eachConn(ctx, r.read, n, func(c *conn, i int) error {
		s := streams[i*len(streams)/n]
		res, err := c.do("HEAD", r.head(r.read, "HEAD", s.readPath, 0), nil, time.Now())
		if err != nil {
			return err
		}
		v := Verification{Records: 1}
		if res.status != http.StatusOK {
			v.Lost = 1
			v.First = (&statusError{"HEAD of a created stream", res.status, s.readPath}).Error()
		}
		r.verified(v)
		return nil
	})
}
