package bgp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
)

// routerRecords bounds what is read.
const routerRecords = 1 << 20

// routerMemory is the file in which a process keeps which routers had the sessions of peers of interfaces, for the next
// one. It decides between routers that are heard, and no more: one that does not answer is not the peer for it.
type routerMemory struct {
	path   string // "" is nowhere
	log    *slog.Logger
	failed bool
}

// routerRecord is the router of a peer's last session on an interface.
type routerRecord struct {
	Peer      string     `json:"peer"`
	Interface string     `json:"interface"`
	Router    netip.Addr `json:"router"` // with its zone
}

// load returns what the process before this one kept. What cannot be read is nothing.
func (m *routerMemory) load() map[onLink]netip.Addr {
	if m.path == "" {
		return nil
	}
	raw, err := os.ReadFile(m.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var records []routerRecord
	if err == nil && len(raw) > routerRecords {
		err = fmt.Errorf("it has %d bytes", len(raw))
	}
	if err == nil {
		err = json.Unmarshal(raw, &records)
	}
	if err != nil {
		m.log.Warn("cannot read the routers of the last sessions: if a link has several routers, none is chosen", "file", m.path, "error", err)
		return nil
	}
	out := map[onLink]netip.Addr{}
	for _, r := range records {
		if r.Interface != "" && r.Router.Zone() == r.Interface && r.Router.IsLinkLocalUnicast() {
			out[onLink{r.Peer, r.Interface}] = r.Router
		}
	}
	return out
}

// keep replaces what is kept.
func (m *routerMemory) keep(last map[onLink]netip.Addr) {
	if m.path == "" {
		return
	}
	records := make([]routerRecord, 0, len(last))
	for at, router := range last {
		records = append(records, routerRecord{at.peer, at.link, router})
	}
	raw, err := json.Marshal(records)
	if err == nil {
		err = os.WriteFile(m.path+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(m.path+".new", m.path)
	}
	if err != nil && !m.failed {
		m.log.Warn("cannot store the routers of sessions: after a restart of this process, if a link has several routers, none is chosen", "file", m.path, "error", err)
	}
	m.failed = err != nil
}
