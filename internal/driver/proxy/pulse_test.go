package proxy

import (
	"os"
	"syscall"
	"testing"
	"time"
)

func TestPulse(t *testing.T) {
	type look struct {
		after    time.Duration
		answered bool
		ran      uint64
		unknown  bool
	}
	still := look{after: 2 * time.Second, ran: 7}
	for name, tt := range map[string]struct {
		looks []look
		hangs bool // at the last look, and at none before
	}{
		"silent and still":            {[]look{still, still, still, still, still, still}, true},
		"not yet":                     {[]look{still, still, still, still, still}, false},
		"it answers once":             {[]look{still, still, still, {2 * time.Second, true, 7, false}, still, still}, false},
		"a thread runs once":          {[]look{still, still, still, {2 * time.Second, false, 8, false}, still, still}, false},
		"a thread ends":               {[]look{still, still, still, {2 * time.Second, false, 3, false}, still, still}, false},
		"nothing can be known":        {[]look{still, still, still, {2 * time.Second, false, 7, true}, still, still}, false},
		"the supervisor slept":        {[]look{still, {time.Hour, false, 7, false}}, false},
		"the clock was set back":      {[]look{still, still, {-time.Hour, false, 7, false}, still, still, still, still}, true},
		"silent from the second look": {[]look{{0, true, 7, false}, still, still, still, still, still}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, now := pulse{after: 10 * time.Second}, time.Unix(1000000, 0)
			for i, l := range tt.looks {
				now = now.Add(l.after)
				got := p.hangs(now, l.answered, l.ran, !l.unknown)
				if want := tt.hangs && i == len(tt.looks)-1; got != want {
					t.Fatalf("look %d: hangs is %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestRunning(t *testing.T) {
	before, known := running(os.Getpid())
	if !known {
		t.Fatal("how long this process ran is not known")
	}
	eventually(t, "it has run longer", func() bool {
		now, _ := running(os.Getpid())
		return now > before
	})
	pid, end := bystander(t)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it stops to run", func() bool {
		a, _ := running(pid)
		b, known := running(pid)
		return known && a == b
	})
	end()
	if _, known := running(pid); known {
		t.Error("it is known of a process that is gone")
	}
}
