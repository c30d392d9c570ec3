package main

func layer(run string) test    { return test{pkg: "./fdblayer", run: run} }
func frontend(run string) test { return test{pkg: "./frontend", run: run} }

// histories is the simulation; it stops at the first seed that fails.
var histories = test{pkg: "./ci/sim", run: "TestHistories", args: "-seed=1 -runs=40 -steps=40"}

// mutants are the bugs. The first are those a layer like this one is known to
// have when it is new; the last ones are those this one had.
var mutants = []mutant{
	{
		"watch armed after the read",
		[]edit{
			{"fdblayer/hub.go", "\t\t\twatch = tx.Watch(s.space.Tail(t.incarnation))\n\t\t}\n\t\treturn nil\n\t})\n",
				"\t\t\tidle = true\n\t\t}\n\t\treturn nil\n\t})\n\tif err == nil && idle {\n\t\terr = s.read(ctx, func(_ context.Context, tx kv.Tx) error {\n\t\t\twatch = tx.Watch(s.space.Tail(t.incarnation))\n\t\t\treturn nil\n\t\t})\n\t}\n"},
			{"fdblayer/hub.go", "\tvar watch kv.Watch\n\tvar piece Piece\n", "\tvar watch kv.Watch\n\tvar piece Piece\n\tidle := false\n"},
		},
		[]test{histories},
	},
	{
		"warm batch reads as of V",
		[]edit{{"fdblayer/warm.go", "tx.SetReadVersion(version - 1)", "tx.SetReadVersion(version)"}},
		[]test{layer("TestCloseOfTheSameVersionIsSeen")},
	},
	{
		"warm batch without conflict on meta",
		[]edit{{"fdblayer/warm.go", "\t\ttx.AddReadConflictKey(s.space.Meta(v.id.Bucket, v.id.Stream))\n", ""}},
		[]test{layer("TestWarmCommitsSeeWhatOthersChanged"), histories},
	},
	{
		"producers of others not guarded",
		[]edit{{"fdblayer/warm.go", "\ttx.AddReadConflictRange(kv.Range{Begin: own[:len(key)+1], End: own})\n\ttx.AddReadConflictRange(kv.Range{Begin: append(bytes.Clone(own), 0), End: append(bytes.Clone(key), 1)})\n",
			"\t_ = bytes.Clone(own)\n"}},
		[]test{layer("TestWarmCommitsSeeWhatOthersChanged"), histories},
	},
	{
		"witness not read",
		[]edit{{"fdblayer/batch.go", "\tif len(b.unknown) > 0 {\n\t\ta, stamp, err := b.look", "\tif len(b.unknown) > 1<<30 {\n\t\ta, stamp, err := b.look"}},
		[]test{layer("TestUnknownOutcomesAreResolvedByLooking"), histories},
	},
	{
		"fence not read",
		[]edit{{"fdblayer/batch.go", "\ttx.AddReadConflictKey(fence)\n", ""}},
		[]test{layer("TestLateCommitsAreRefused"), histories},
	},
	{
		"retention refuses its own offset",
		[]edit{{"fdblayer/read.go", "\tif pos.Less(s.meta.retained) {", "\tif !s.meta.retained.Less(pos) && !s.meta.retained.IsStart() {"}},
		[]test{layer("TestSnapshotRetentionBootstrap"), histories},
	},
	{
		"retention drops one record too many",
		[]edit{{"fdblayer/retain.go", "\ttx.ClearRange(kv.Range(s.space.LogUntil(m.incarnation, offset)))\n",
			"\tr0 := s.space.LogUntil(m.incarnation, offset)\n\tif rows, _, err := tx.GetRange(kv.FirstGreaterOrEqual(r0.End), kv.FirstGreaterOrEqual(s.space.LogRange(m.incarnation).End), kv.RangeOptions{Limit: 1}).Next(ctx); err == nil && len(rows) > 0 {\n\t\tr0.End = append(rows[0].Key, 0)\n\t}\n\ttx.ClearRange(kv.Range(r0))\n"}},
		[]test{layer("TestSnapshotRetentionBootstrap"), histories},
	},
	{
		"producer state not written",
		[]edit{{"fdblayer/batch.go", "\t\ts.writeProducer(tx, inc, id, v.producers[id])\n", "\t\t_ = id\n"}},
		[]test{histories},
	},
	{
		"close does not conflict with appends",
		[]edit{{"fdblayer/batch.go", "\tif v.metaChanged {\n", "\tif v.metaChanged {\n\t\ttx.SetNextWriteNoConflict()\n"}},
		[]test{layer("TestCloseRacesWarmAppends"), histories},
	},
	{
		"closed check skipped",
		[]edit{{"fdblayer/rules.go", "\tif v.meta.closed {\n\t\treturn v.appendClosed", "\tif v.meta.closed && !hasBody {\n\t\treturn v.appendClosed"}},
		[]test{layer("TestCloseEndsTheStreamForEveryFrontend"), histories},
	},
	{
		"precondition not asked",
		[]edit{{"fdblayer/rules.go", "\tif !pre.Set || v.meta != nil", "\tif !pre.Set || v.meta == nil || v.meta != nil && !v.meta.closed || v.meta != nil"}},
		[]test{layer("TestDeleteLeavesNothingAndRecreateIsAnotherStream"), histories},
	},
	{
		"etag without closure",
		[]edit{{"frontend/etag.go", "\tif p.Closed {\n\t\tb = append(b, \":c\"...)\n\t}\n", ""}},
		[]test{frontend("TestClosureIsNotHiddenByNotModified")},
	},
	{
		"etag without incarnation",
		[]edit{{"frontend/etag.go", "\traw = append(raw, p.Stream.Incarnation[:]...)\n", ""}},
		[]test{frontend("TestRecreatedStreamIsNotNotModified")},
	},
	{
		"snapshot visible before its chunks",
		[]edit{{"fdblayer/snapshot.go", "\t\tif last {\n\t\t\treturn u.staged.settle()\n\t\t}\n", "\t\tif last {\n\t\t\treturn nil\n\t\t}\n"}},
		[]test{histories},
	},
	{
		"superseded snapshot cleared at once",
		[]edit{{"fdblayer/snapshot.go", "s.now().Add(s.opts.SnapshotGrace)", "s.now()"}},
		[]test{layer("TestSupersededSnapshotsOutliveTheirReaders")},
	},
	{
		"touch lost",
		[]edit{{"fdblayer/touch.go", "\t\ttx.Atomic(kv.Max, s.space.Touch(inc), encodeTouch(now))\n", ""}},
		[]test{layer("TestSlidingTTLAndReaper")},
	},
	{
		"fork reference not dropped",
		[]edit{{"fdblayer/delete.go", "\ttx.Clear(s.space.Fork(f.sourceIncarnation, m.incarnation))\n", ""}},
		[]test{layer("TestForksShareOffsetsAndOutliveTheirSource"), histories},
	},
	{
		"delete does not look for forks",
		[]edit{{"fdblayer/delete.go", "\t\tif forks {\n", "\t\tif forks && v.meta.softDeleted {\n"}},
		[]test{layer("TestForksShareOffsetsAndOutliveTheirSource"), histories},
	},
	{
		"reaper trusts its index",
		[]edit{{"fdblayer/sweep.go", "\t\tcase !v.expired(now):\n", "\t\tcase !v.expired(now) && !v.meta.expiry.HasTTL:\n"}},
		[]test{histories},
	},

	{
		"topic stays behind retention",
		[]edit{{"fdblayer/hub.go", "\tif t.tail.Less(p.Start) {", "\tif t.tail.Less(p.Start) && t.closed != nil {"}},
		[]test{layer("TestRetentionPastATopic"), histories},
	},
	{
		"fork made twice",
		[]edit{{"fdblayer/fork.go", "\t\tif at.Unknown && o.create.Created {", "\t\tif at.Unknown && o.create.Created && made.meta == nil {"}},
		[]test{layer("TestForkIsNotMadeTwice")},
	},
	{
		"late attempt of the batch before",
		[]edit{{"fdblayer/batch.go", "\tb.lane.doubt = true\n", ""}},
		[]test{layer("TestLateCommitOfTheBatchBefore")},
	},
	{
		"refusal leaves the attempt in doubt",
		[]edit{{"fdblayer/batch.go", "\tif !wrote && !b.doubtful() {", "\tif !wrote {"}},
		[]test{layer("TestRefusalBarsTheAttemptInDoubt")},
	},
	{
		"applied called unavailable",
		[]edit{{"fdblayer/batch.go", "p.out = outcome{err: applied(err)}", "p.out = outcome{err: internalError(err)}"}},
		[]test{layer("TestAppliedIsNeverCalledUnavailable")},
	},
	{
		"touch resurrects",
		[]edit{{"fdblayer/touch.go", " || v.missing(s.now()) != nil {", " {"}},
		[]test{layer("TestTouchDoesNotResurrect")},
	},
}
