package fdbcluster

import "syscall"

// dieWithParent makes a child die with the thread that starts it.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
