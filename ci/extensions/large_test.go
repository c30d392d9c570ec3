package extensions

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// largeCases move one snapshot of HEADWATER_LARGE_MIB mebibytes, 1024 for the
// spec's largest; it takes its time, so it is not run by default. With
// HEADWATER_PIDS, the servers' process ids, their resident sets are shown and
// must stay far below the body.
func largeCases() []testCase {
	return []testCase{{"2.2", "large_body_in_bounded_memory", func(e *env) {
		size, err := strconv.ParseInt(os.Getenv("HEADWATER_LARGE_MIB"), 10, 64)
		if err != nil || size < 1 {
			e.Skip("set HEADWATER_LARGE_MIB")
		}
		size *= mib
		s := e.create(typeBytes)
		s.publish(s.add("x"), "small").want(204)
		at := s.add("y")
		before := e.residentSets()

		ctx, cancel := context.WithTimeout(e.Context(), 30*time.Minute)
		defer cancel()
		sent := sha256.New()
		body := io.TeeReader(io.LimitReader(&repeat{block: []byte(pattern(mib+13, 37))}, size), sent)
		res, err := e.send(ctx, "PUT", s.path+"/snapshot/"+at, body)
		if err != nil {
			e.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != 204 {
			e.Fatalf("publish: %s", res.Status)
		}
		for _, path := range []string{s.path + "/snapshot/" + at, s.path + "/bootstrap"} {
			res, err := e.send(ctx, "GET", path, nil)
			if err != nil {
				e.Fatal(err)
			}
			got := sha256.New()
			from := io.Reader(res.Body)
			if strings.HasSuffix(path, "/bootstrap") {
				first, err := firstPart(res)
				if err != nil {
					e.Fatal(err)
				}
				from = first
			}
			n, err := io.Copy(got, from)
			_ = res.Body.Close()
			if err != nil || n != size || !bytes.Equal(got.Sum(nil), sent.Sum(nil)) {
				e.Errorf("%s: %d bytes of %d, %v, or others", path, n, size, err)
			}
		}
		for pid, peak := range e.residentSets() {
			e.Logf("process %d: resident set at most %d MiB, %d MiB before, for a body of %d MiB", pid, peak>>20, before[pid]>>20, size>>20)
			if grown := peak - before[pid]; size >= 512*mib && grown > size/2 {
				e.Errorf("process %d: the resident set grew by %d MiB", pid, grown>>20)
			}
		}
	}}}
}

// repeat yields block again and again.
type repeat struct {
	block []byte
	at    int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.block[r.at:])
	r.at = (r.at + n) % len(r.block)
	return n, nil
}

// residentSets returns the largest resident set each server has had, by process id.
func (e *env) residentSets() map[int]int64 {
	sets := map[int]int64{}
	for _, pid := range e.pids {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			e.Logf("no resident set: %v", err)
			continue
		}
		_, after, _ := strings.Cut(string(status), "VmHWM:")
		var kib int64
		if _, err := fmt.Sscan(after, &kib); err == nil {
			sets[pid] = kib << 10
		}
	}
	return sets
}
