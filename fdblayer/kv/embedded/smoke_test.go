package embedded

import (
	"context"
	"testing"
	"time"

	"headwater/fdblayer/kv"
)

func TestSmoke(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	db, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	tx := db.Begin()
	w := tx.Watch([]byte("a"))
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range 100 {
		c, err := kv.Transact(ctx, db, func(ctx context.Context, tx kv.Tx, at kv.Attempt) error {
			v, err := tx.Get([]byte("n")).Wait(ctx)
			if err != nil {
				return err
			}
			tx.Set([]byte("n"), append(v, 'x'))
			tx.Atomic(kv.Add, []byte("a"), []byte{1, 0})
			tx.Atomic(kv.SetVersionstampedKey, append([]byte("log/0123456789"), 4, 0, 0, 0), []byte("v"))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			t.Log(c)
		}
	}
	t.Log(time.Since(start))
	if err := w.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	db.Close()
	db, err = Open(ctx, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	kv.Read(ctx, db, func(ctx context.Context, tx kv.Tx) error {
		v, err := tx.Get([]byte("n")).Wait(ctx)
		t.Log(len(v), err)
		v, err = tx.Get([]byte("a")).Wait(ctx)
		t.Log(v, err)
		rows, more, err := tx.GetRange(kv.FirstGreaterOrEqual([]byte("log/")), kv.FirstGreaterOrEqual([]byte("log0")), kv.RangeOptions{}).Next(ctx)
		t.Log(len(rows), more, err)
		return nil
	})
}
