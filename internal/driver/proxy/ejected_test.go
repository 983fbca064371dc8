package proxy

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func TestEjections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outliers.log")
	now := time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC)
	e := newEjections(path, func() time.Time { return now })
	write := func(lines ...string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Join(lines, "")); err != nil {
			t.Fatal(err)
		}
	}
	line := func(action, cluster, backend string, enforced bool) string {
		return fmt.Sprintf(`{"type":"CONSECUTIVE_5XX","cluster_name":%q,"upstream_url":%q,"action":%q,"num_ejections":1,"enforced":%v,"eject_consecutive_event":{},"timestamp":%q}`+"\n",
			cluster, backend, action, enforced, now.Format(time.RFC3339Nano))
	}
	expect := func(what string, changed bool, want ...string) {
		t.Helper()
		if got := e.look(); got != changed {
			t.Errorf("%s: changed is %v", what, got)
		}
		var list []string
		for _, x := range e.list() {
			list = append(list, string(x.Group)+" "+x.Backend.String())
		}
		if !slices.Equal(list, want) {
			t.Errorf("%s: %v, want %v", what, list, want)
		}
	}
	expect("there is no file", false)
	half := line("EJECT", "c", "10.0.0.2:80", true)
	write(line("EJECT", "c", "10.0.0.1:80", true), line("EJECT", "d", "10.0.0.1:80", true), line("EJECT", "c", "[fd00::1]:80", true), half[:20])
	expect("two backends and half a line", true, "c 10.0.0.1:80", "c [fd00::1]:80", "d 10.0.0.1:80")
	write(half[20:], "garbage\n", line("EJECT", "c", "10.0.0.3:80", false), line("EJECT", "c", "unix", true), line("UNEJECT", "c", "10.0.0.1:80", false))
	expect("the rest, and what is not meant", true, "c 10.0.0.2:80", "c [fd00::1]:80", "d 10.0.0.1:80")
	write(line("UNEJECT", "d", "10.0.0.1:80", false))
	expect("it is back everywhere", true, "c 10.0.0.2:80", "c [fd00::1]:80")
	expect("nothing", false, "c 10.0.0.2:80", "c [fd00::1]:80")
	now = now.Add(ejectionLife / 2)
	write(line("EJECT", "c", "10.0.0.2:80", true))
	now = now.Add(ejectionLife * 3 / 4)
	expect("old ones are not believed", true, "c 10.0.0.2:80")
	write(strings.Repeat(line("UNEJECT", "x", "10.0.0.9:80", false), maxEvents/150))
	e.look()
	if info, err := os.Stat(path); err != nil || info.Size() > maxEvents {
		t.Errorf("the file grows: %v, %v", info.Size(), err)
	}
	write(line("EJECT", "c", "10.0.0.4:80", true))
	expect("after it was emptied", true, "c 10.0.0.2:80", "c 10.0.0.4:80")
	again := newEjections(path, e.now)
	again.look()
	if !slices.Contains(again.list(), model.Ejection{Group: "c", Backend: netip.MustParseAddrPort("10.0.0.4:80")}) {
		t.Error("the next agent does not know")
	}
	e.reset()
	expect("a new Envoy", false)
}
