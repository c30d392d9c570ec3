package bench

import (
	"context"
	"fmt"
)

// runCatchUp fills streams and lets readers read them whole, again and again.
func runCatchUp(ctx context.Context, r *run) error {
	streams, err := r.createStreams(ctx, r.cfg.Streams, maxSetup)
	if err != nil {
		return err
	}
	r.say("filling %d streams of %d bytes", len(streams), r.cfg.Total)
	for _, s := range streams {
		if err := r.fill(ctx, s, r.cfg.Total); err != nil {
			return err
		}
	}
	return r.loop(ctx, r.cfg.Readers, func(ctx context.Context, i int) (operation, error) {
		return func(k int, _ int64) (int, error) {
			s := streams[(i+k)%len(streams)]
			c := newChecker(fmt.Sprintf("reader %d of %s", i, s.readPath), r.record, r.cfg.ContentType, len(s.sources))
			_, err := r.readAll(ctx, s.readPath, "-1", func(p []byte) {
				// Counted as they come: few whole reads may fit the time.
				if now := r.clock.now(); now >= r.warm && now < r.end {
					r.bytes.add(i, int64(len(p)))
				}
				c.feed(p)
			})
			if err != nil {
				return 0, err
			}
			r.verified(c.finish(s.sources))
			return 0, nil
		}, nil
	})
}
