package bgp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// bfdBeat is how often what is remembered is marked as current.
	bfdBeat = 2 * time.Second
	// bfdMost bounds the times that are believed, and how long a peer is asked to wait. A packet can name no more.
	bfdMost = 4200 * time.Second
	// bfdRecords bounds what is read.
	bfdRecords = 1 << 20
)

// bfdMemory is the file in which a process keeps its BFD sessions that are up, for the next one to go on with. It is
// of use only to the machine that wrote it, before it boots again, and for as long as peers wait for the machine.
type bfdMemory struct {
	path string // "" is nowhere
	log  *slog.Logger

	mu       sync.Mutex
	sessions map[bfdEnds]bfdRecord
	failed   bool
}

// bfdEnds tells sessions apart.
type bfdEnds struct {
	local, remote netip.Addr
	device        string
	multihop      bool
}

// bfdRecord is a session that is up.
type bfdRecord struct {
	Local       netip.Addr    `json:"local"`
	Remote      netip.Addr    `json:"remote"`
	Device      string        `json:"device,omitempty"`
	Multihop    bool          `json:"multihop,omitempty"`
	Port        uint16        `json:"port"` // from which we send
	Mine        uint32        `json:"mine"`
	Yours       uint32        `json:"yours"`
	Interval    time.Duration `json:"intervalNanoseconds"`
	Multiplier  uint8         `json:"multiplier"`
	Hold        time.Duration `json:"holdNanoseconds"` // how long the peer waits for the machine
	RemoteMinRx time.Duration `json:"remoteMinRxNanoseconds"`
	Detect      time.Duration `json:"detectNanoseconds"` // after which the peer is lost
}

// bfdFile is what the file holds.
type bfdFile struct {
	Boot     string        `json:"boot"`
	Awake    time.Duration `json:"sinceBootNanoseconds"` // when it was written; it steps with no clock
	Sessions []bfdRecord   `json:"sessions"`
}

func (r bfdRecord) ends() bfdEnds { return bfdEnds{r.Local, r.Remote, r.Device, r.Multihop} }

// sane reports whether a session can be as the record says.
func (r bfdRecord) sane() bool {
	within := func(d time.Duration) bool { return d > 0 && d <= bfdMost }
	return r.Local.IsValid() && r.Remote.IsValid() && r.Local.Is4() == r.Remote.Is4() && r.Mine != 0 && r.Yours != 0 &&
		r.Port >= bfdFirstSource && r.Multiplier > 0 && within(r.Interval) && within(r.Hold) && within(r.Detect) &&
		r.RemoteMinRx >= 0 && r.RemoteMinRx <= bfdMost
}

// load returns the sessions with which to go on. What cannot be read is none.
func (m *bfdMemory) load() []bfdRecord {
	if m.path == "" {
		return nil
	}
	raw, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var f bfdFile
	if err == nil && len(raw) > bfdRecords {
		err = fmt.Errorf("it has %d bytes", len(raw))
	}
	if err == nil {
		err = json.Unmarshal(raw, &f)
	}
	if err != nil {
		m.log.Warn("BFD starts anew: its stored sessions cannot be read", "file", m.path, "error", err)
		return nil
	}
	boot, awake, err := sinceBoot()
	if err != nil || f.Boot != boot {
		return nil
	}
	age := awake - f.Awake
	return slices.DeleteFunc(f.Sessions, func(r bfdRecord) bool {
		return !r.sane() || age < 0 || age > r.Hold+2*bfdBeat
	})
}

// put remembers a session.
func (m *bfdMemory) put(r bfdRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.path == "" || !r.sane() {
		return
	}
	m.sessions[r.ends()] = r
	m.write()
}

// drop forgets a session.
func (m *bfdMemory) drop(e bfdEnds) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.sessions[e]; !known {
		return
	}
	delete(m.sessions, e)
	m.write()
}

// beat says that what is remembered is so now.
func (m *bfdMemory) beat() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.sessions) > 0 {
		m.write()
	}
}

// write replaces the file. The caller holds m.mu.
func (m *bfdMemory) write() {
	err := m.replace()
	if err != nil && !m.failed {
		m.log.Warn("cannot store the BFD sessions: a restart of this process would look like a failure to peers with BFD", "file", m.path, "error", err)
	}
	m.failed = err != nil
}

func (m *bfdMemory) replace() error {
	boot, awake, err := sinceBoot()
	if err != nil {
		return err
	}
	raw, err := json.Marshal(bfdFile{Boot: boot, Awake: awake, Sessions: slices.Collect(maps.Values(m.sessions))})
	if err != nil {
		return err
	}
	next := m.path + ".new"
	if err := os.WriteFile(next, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(next, m.path)
}

// sinceBoot names the boot of the machine, and says how long ago it was, sleep included.
func sinceBoot() (boot string, awake time.Duration, err error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", 0, err
	}
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return "", 0, os.NewSyscallError("clock_gettime", err)
	}
	return strings.TrimSpace(string(raw)), time.Duration(t.Nano()), nil
}
