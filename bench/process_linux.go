package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ticksPerSecond is the unit of /proc/PID/stat's times, which is the same on
// every architecture Go runs on.
const ticksPerSecond = 100

// useOf reads the CPU time and the memory of a process from /proc.
func useOf(pid int) (processUse, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processUse{}, fmt.Errorf("the server's process: %w", err)
	}
	// The command's name, in brackets, may hold anything; 11 fields stand
	// between it and utime.
	_, rest, _ := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(" "))
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return processUse{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var u processUse
	for _, f := range fields[11:13] {
		ticks, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return processUse{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		u.cpu += float64(ticks) / ticksPerSecond
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return processUse{}, fmt.Errorf("the server's process: %w", err)
	}
	for line := range bytes.Lines(status) {
		var kb int64
		if n, _ := fmt.Sscanf(string(line), "VmRSS: %d kB", &kb); n == 1 {
			u.rss = kb << 10
		}
		if n, _ := fmt.Sscanf(string(line), "VmHWM: %d kB", &kb); n == 1 {
			u.peak = kb << 10
		}
	}
	return u, nil
}

func ownUse() (processUse, error) {
	var ru syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
		return processUse{}, err
	}
	return processUse{cpu: float64(ru.Utime.Nano()+ru.Stime.Nano()) / 1e9, peak: ru.Maxrss << 10}, nil
}

// nap sleeps in the kernel, whose timers are better than the runtime's. A
// signal may end it early.
func nap(d time.Duration) {
	if d > 0 {
		ts := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&ts, nil)
	}
}
