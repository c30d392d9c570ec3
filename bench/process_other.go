//go:build !linux

package bench

import (
	"errors"
	"time"
)

// useOf needs /proc.
func useOf(int) (processUse, error) {
	return processUse{}, errors.New("a process's use can be measured on Linux only")
}

func ownUse() (processUse, error) { return processUse{}, nil }

func nap(d time.Duration) { time.Sleep(d) }
