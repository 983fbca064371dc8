package lab

import (
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

func sleepForever(stubborn bool) {
	if stubborn {
		signal.Ignore(unix.SIGTERM)
	}
	fmt.Printf("ready %d\n", os.Getpid())
	for {
		_ = unix.Pause()
	}
}
