package bench

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fairlead.dev/lab"
)

func TestMain(m *testing.M) {
	lab.MaybeJanitor()
	os.Exit(m.Run())
}

// Packets are the work of the machine that they arrive at, and of no other; softirqs that
// come while a process runs are not its work.
func TestSoftirqsAreChargedToTheirMachine(t *testing.T) {
	if err := lab.Supported(); err != nil {
		t.Skip(err)
	}
	l, err := lab.Up(t.Context(), lab.Topology{Name: "softirqs", Machines: []lab.MachineSpec{{Name: "from"}, {Name: "to"}, {Name: "idle"}}},
		lab.Options{Dir: filepath.Join(t.TempDir(), "labs")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Down(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	s, err := watchSoftirqs(l.Machines(), []int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	read := func(name string, processes ...int) usage {
		t.Helper()
		u, err := meter{machine: l.Machine(name), processes: processes}.read(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	from, to := l.Machine("from"), l.Machine("to")
	inbox, err := to.ListenPacket(t.Context(), "udp", net.JoinHostPort(to.Addr4().String(), "9"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = inbox.Close() }()
	conn, err := from.Dial(t.Context(), "udp", inbox.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	send := func(n int) {
		t.Helper()
		for range n {
			if _, err := conn.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			_ = inbox.SetReadDeadline(time.Now().Add(10 * time.Second))
			if _, _, err := inbox.ReadFrom(make([]byte, 8)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(1) // neighbours are found
	before := map[string]usage{"from": read("from"), "to": read("to"), "idle": read("idle")}
	const n = 2000
	send(n)
	for name, want := range map[string]uint64{"from": 0, "to": n, "idle": 0} {
		did := read(name).since(before[name])
		// A few more are the kernel's own.
		if did.packets < want || did.packets > want+20 {
			t.Errorf("%s: %d packets, want %d", name, did.packets, want)
		}
		if each := did.kernel / n; name == "to" && (each < 100*time.Nanosecond || each > 100*time.Microsecond) || name != "to" && each > time.Microsecond {
			t.Errorf("%s took %s for a packet", name, each)
		}
	}
	if took, err := s.during(os.Getpid()); err != nil || took == 0 {
		t.Errorf("no softirq came while this process sent (%v)", err)
	}
}
