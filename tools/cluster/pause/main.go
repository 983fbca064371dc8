// Command pause is the first process of a pod: it holds the pod's namespaces and reaps what the
// others leave.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			var status syscall.WaitStatus
			if id, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil); id <= 0 || err != nil {
				break
			}
		}
	}
}
