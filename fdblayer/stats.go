package fdblayer

import "sync/atomic"

// stats counts what the write path does.
type stats struct {
	warm, cold, requests, conflicts, unknown atomic.Int64
}

func (s *stats) commit(warm bool, requests int) {
	if warm {
		s.warm.Add(1)
	} else {
		s.cold.Add(1)
	}
	s.requests.Add(int64(requests))
}

// Stats are counters since the Store was opened.
type Stats struct {
	// WarmCommits are batches that were committed without any read, ColdCommits
	// those that read first.
	WarmCommits, ColdCommits int64
	// Requests are the writes in all of them.
	Requests int64
	// Conflicts are attempts refused because somebody else had changed what
	// they were judged by, Unknown those whose outcome had to be looked up.
	Conflicts, Unknown int64
	// LiveReaders and Topics are the live readers there are and the streams
	// they follow.
	LiveReaders, Topics int
	// QueuedRequests and QueuedBytes are what waits in the lanes for the next
	// batch.
	QueuedRequests, QueuedBytes int
}

// Stats returns the Store's counters.
func (s *Store) Stats() Stats {
	st := Stats{
		WarmCommits: s.stats.warm.Load(), ColdCommits: s.stats.cold.Load(), Requests: s.stats.requests.Load(),
		Conflicts: s.stats.conflicts.Load(), Unknown: s.stats.unknown.Load(),
	}
	for _, l := range s.lanes {
		l.mu.Lock()
		st.QueuedRequests += len(l.queue)
		st.QueuedBytes += l.bytes
		l.mu.Unlock()
	}
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	st.LiveReaders, st.Topics = s.hub.readers, len(s.hub.topics)
	return st
}
