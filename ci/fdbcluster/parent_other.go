//go:build !linux

package fdbcluster

import "syscall"

// dieWithParent does nothing where the kernel offers no such thing: a server is
// left behind there by a test process that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }
