package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// note is what is written down of a running Envoy, for the next supervisor.
type note struct {
	PID       int    `json:"pid"`
	Binary    string `json:"binary"`
	ADSSocket string `json:"adsSocket"`
	NodeID    string `json:"nodeID"`
	Bootstrap string `json:"bootstrap"` // SHA-256
	Began     uint64 `json:"began"`     // as startOf says; 0 if it is not known
	Log       int64  `json:"log"`       // where its output begins
	// UID and GID are of another user than the agent's; 0 where it is none.
	UID uint32 `json:"uid,omitempty"`
	GID uint32 `json:"gid,omitempty"`
}

// alive says whether the process that was noted still lives: by number and start, so it is that
// one. It is how an Envoy is known whose descriptors this user may not look at, too, because its
// binary has capabilities (setcap).
func (n *note) alive() bool { return n.Began != 0 && startOf(n.PID) == n.Began }

func (s *Supervisor) note(p *process, binary string, bootstrap []byte) {
	sum := sha256.Sum256(bootstrap)
	data, err := json.Marshal(note{
		PID: p.pid, Binary: binary, ADSSocket: s.config.ADSSocket, NodeID: s.config.NodeID, Bootstrap: hex.EncodeToString(sum[:]),
		Began: startOf(p.pid), Log: p.log, UID: s.config.User.UID, GID: s.config.User.GID,
	})
	if err == nil {
		fresh := s.path("envoy.json.new")
		err = errors.Join(remove(fresh), os.WriteFile(fresh, append(data, '\n'), 0o600), os.Rename(fresh, s.path("envoy.json")))
	}
	if err != nil { // the next agent goes by the lock then, and replaces an Envoy of another user
		s.config.Log.Warn("cannot record the proxy's process", "error", err)
	}
}

// runsAs says whether a process is that user's.
func runsAs(pid, uid int) bool {
	is, known := userOf(pid)
	return known && int(is) == uid
}

// noted reads the note of an Envoy, nil if there is none.
func (s *Supervisor) noted() *note { return readNote(s.path("envoy.json")) }

func readNote(path string) (n *note) {
	// Only what an agent of this user wrote.
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(data, &n) != nil {
		return nil
	}
	return n
}

// recall is the note of a running Envoy, nil if there is none, and says whether it
// would be started in the same way now.
func (s *Supervisor) recall(pid int) (n *note, current bool) {
	n = s.noted()
	if n == nil || n.PID != pid || n.Began != 0 && !n.alive() {
		return nil, false
	}
	binary, err := exec.LookPath(s.config.Binary)
	if err != nil {
		return n, false
	}
	bootstrap, err := s.bootstrap()
	if err != nil {
		return n, false
	}
	sum := sha256.Sum256(bootstrap)
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // "… (deleted)" after an upgrade
	real, e := filepath.EvalSymlinks(binary)
	return n, err == nil && e == nil && exe == real && n.Bootstrap == hex.EncodeToString(sum[:])
}
