package frontend

import (
	"context"
	"errors"
	"net/http"

	"headwater/fdblayer"
)

// longPoll answers at once if there is something to say, and else waits for it
// (PROTOCOL.md 5.7).
func (f *Frontend) longPoll(x *exchange, q *readQuery, req fdblayer.ReadRequest, wanted form) error {
	ctx := x.r.Context()
	x.tally.route = routeLongPoll
	reader, p, err := f.store.Live(ctx, req)
	switch {
	case hasCode(err, fdblayer.CodeDraining):
		// Whoever comes while we shut down is answered without waiting; its next
		// poll goes to somebody else.
		if p, err = f.store.Read(ctx, req); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		defer reader.Close()
		if len(p.Data) == 0 && !p.Closed {
			x.park()
			if p, err = await(ctx, q, reader, p); err != nil {
				return err
			}
		}
	}
	x.describePiece(&p, wanted)
	h := x.header()
	if !p.Closed {
		h[hCursor] = []string{cursorText(f.nextCursor(q.cursor))}
	}
	if len(p.Data) == 0 {
		delete(h, "Content-Type")
		h[hUpToDate] = headerTrue
		x.answer(http.StatusNoContent, nil)
		return nil
	}
	return x.answerPiece(q, &p, wanted)
}

// await returns the piece that comes within the time a poll has, or the empty
// one it began with.
func await(ctx context.Context, q *readQuery, reader *fdblayer.LiveReader, begun fdblayer.Piece) (fdblayer.Piece, error) {
	wait, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	ev, err := reader.Next(wait)
	switch {
	case err == nil:
		return ev.Piece, nil
	case hasCode(err, fdblayer.CodeDraining):
		return begun, nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return begun, nil
	}
	return begun, err
}
