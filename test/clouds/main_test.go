package clouds

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"fairlead.dev/lab"
	"fairlead.dev/lab/backend"
)

// podKey makes this test binary the program of a pod, which answers with the name that the variable holds.
const podKey = "FAIRLEAD_CLOUDS_POD"

// port at which pods and members answer.
const port = 8080

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	if name := os.Getenv(podKey); name != "" {
		if err := serve(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve is a pod until it is told to end.
func serve(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return err
	}
	return backend.Serve(ctx, backend.New(name), 10*time.Second, l)
}
