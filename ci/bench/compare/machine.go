package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// machine is what the figures depend on.
type machine struct {
	Time   time.Time `json:"time"`
	Commit string    `json:"commit"`
	Cores  int       `json:"cores"`
	CPU    string    `json:"cpu"`
	Memory string    `json:"memory"`
	Kernel string    `json:"kernel"`
	Go     string    `json:"go"`
	Node   string    `json:"node,omitempty"`
	Load   string    `json:"load_average_before"`
	// Fsync50 and Fsync99 are of a loop that appends 512 B to a file and calls
	// fsync, on the disk that the servers use, in milliseconds, before the first
	// round; the medians over the rounds are in Fsyncs.
	Fsync50 float64   `json:"fsync_p50_ms"`
	Fsync99 float64   `json:"fsync_p99_ms"`
	Fsyncs  []float64 `json:"fsync_p50_ms_per_round"`
	// Loads are the load averages of one minute before each round. The runs
	// themselves make about two; what is above is others' work.
	Loads []string `json:"load_average_per_round,omitempty"`
}

func thisMachine(ctx context.Context) machine {
	return machine{
		Time:   time.Now().UTC().Truncate(time.Second),
		Commit: output(ctx, "git", "rev-parse", "--short", "HEAD"),
		Cores:  runtime.NumCPU(),
		CPU:    procField("/proc/cpuinfo", "model name"),
		Memory: procField("/proc/meminfo", "MemTotal"),
		Kernel: procLine("/proc/sys/kernel/osrelease"),
		Go:     runtime.Version(),
		Node:   output(ctx, "node", "--version"),
		Load:   procLine("/proc/loadavg"),
	}
}

// output is what a command prints, "" where it can't be run.
func output(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func procLine(file string) string {
	p, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(p))
}

func procField(file, name string) string {
	p, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range bytes.Lines(p) {
		if key, value, found := strings.Cut(string(line), ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// fsyncLoop measures the disk: n times 512 B appended and synced.
func fsyncLoop(dir string, n int) (p50, p99 float64, err error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, 0, fmt.Errorf("fsync loop: %w", err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the directory goes, too
	defer f.Close()
	block := make([]byte, 512)
	times := make([]time.Duration, n)
	for i := range times {
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, 0, fmt.Errorf("fsync loop: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, 0, fmt.Errorf("fsync loop: %w", err)
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	ms := func(i int) float64 { return float64(times[i].Microseconds()) / 1e3 }
	return ms(n / 2), ms(n * 99 / 100), nil
}
