package kv

import "context"

// Each reads the keys of a range and calls fn for every row in order, until
// the range or the options' limit ends it, or fn fails.
func Each(ctx context.Context, from Reader, r Range, opt RangeOptions, fn func(KeyValue) error) error {
	rows := from.GetRange(FirstGreaterOrEqual(r.Begin), FirstGreaterOrEqual(r.End), opt)
	for {
		batch, more, err := rows.Next(ctx)
		if err != nil {
			return err
		}
		for _, row := range batch {
			if err := fn(row); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}
