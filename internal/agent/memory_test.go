package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"fairlead.dev/internal/delta"
	"fairlead.dev/internal/gate/gatetest"
	"fairlead.dev/internal/record"
	agentv1 "fairlead.dev/proto/agent/v1"
)

func at(epoch, number uint64) delta.Revision { return delta.Revision{Epoch: epoch, Number: number} }

func checkpointAt(t testing.TB, r delta.Revision) delta.Change {
	return delta.Change{Type: typeCheckpoint, Name: agentv1.CheckpointName, Resource: gatetest.Pack(t, agentv1.CheckpointName,
		&agentv1.Checkpoint{Epoch: r.Epoch, Revision: r.Number})}
}

// responseOf is what a plane sends of changes of one type.
func responseOf(t testing.TB, revision delta.Revision, changes ...delta.Change) *discoveryv3.DeltaDiscoveryResponse {
	t.Helper()
	resp := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: revision.String(), TypeUrl: string(changes[0].Type), Nonce: "n"}
	for _, c := range changes {
		if c.Resource == nil {
			resp.RemovedResources = append(resp.RemovedResources, c.Name)
			continue
		}
		resp.Resources = append(resp.Resources, &discoveryv3.Resource{Name: c.Name, Version: c.Resource.Version, Resource: c.Resource.Body})
	}
	return resp
}

// text shows a remembered state, one resource a line.
func (r remembered) text() string {
	var b strings.Builder
	fmt.Fprintln(&b, r.revision)
	for part, changes := range map[string][]delta.Change{partGood: r.good, partTarget: r.target} {
		for _, c := range changes {
			fmt.Fprintf(&b, "%s %s %s %s %x\n", part, c.Type, c.Name, c.Resource.Version, c.Resource.Body.GetValue())
		}
	}
	lines := strings.Split(b.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func recall(t *testing.T, path string) (*memory, remembered) {
	t.Helper()
	m, r, err := openMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m, r
}

func write(t *testing.T, m *memory, batches ...memoryBatch) {
	t.Helper()
	if err := m.write(batches); err != nil {
		t.Fatal(err)
	}
}

// history is a life of a machine in three records.
func history(t *testing.T) [][]memoryBatch {
	c1, c2 := gatetest.Cluster(t, "c1", "s1", 1), gatetest.Cluster(t, "c1", "s1", 2)
	routes := gatetest.Routes(t, "r1", gatetest.Host{Name: "h1", Salt: 1, Clusters: []string{"c1"}})
	return [][]memoryBatch{
		{
			{revision: at(1, 1), target: []delta.Change{c1, gatetest.Cluster(t, "c2", "s2", 1), gatetest.Endpoints(t, "s1", 1), routes}},
			{revision: at(1, 1), target: []delta.Change{checkpointAt(t, at(1, 1))}, good: []delta.Change{c1, routes}},
		},
		{{revision: at(1, 2), target: []delta.Change{c2, gatetest.Removal(typeCluster, "c2"), checkpointAt(t, at(1, 2))}}},
		{{revision: at(2, 1)}, {revision: at(2, 1), good: []delta.Change{c2, gatetest.Removal(typeRoute, "r1")}}},
	}
}

func TestMemoryRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	m, r := recall(t, path)
	if r.text() != (remembered{}).text() {
		t.Fatalf("before anything there is %s", r.text())
	}
	want := map[key]string{}
	for _, batches := range history(t) {
		write(t, m, batches...)
		if _, r = recall(t, path); r.text() != m.remembered().text() {
			t.Fatalf("read\n%s\nwrote\n%s", r.text(), m.remembered().text())
		}
	}
	if r.revision != at(2, 1) {
		t.Errorf("revision %s", r.revision)
	}
	for _, c := range r.target {
		want[key{c.Type, c.Name}] = c.Resource.Version
	}
	for k, version := range map[key]string{
		{typeCluster, "c1"}: gatetest.Cluster(t, "c1", "s1", 2).Resource.Version, {typeCluster, "c2"}: "",
		{typeCheckpoint, agentv1.CheckpointName}: checkpointAt(t, at(1, 2)).Resource.Version,
	} {
		if want[k] != version {
			t.Errorf("%s %s is %q, want %q", k.kind, k.name, want[k], version)
		}
	}
	// What Envoy had accepted is there whole, though only its version was written.
	if len(r.good) != 1 || r.good[0].Name != "c1" || !proto.Equal(r.good[0].Resource.Body, gatetest.Cluster(t, "c1", "s1", 2).Resource.Body) {
		t.Errorf("good is %+v", r.good)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others may read it: %v %v", info.Mode(), err)
	}
}

// TestMemoryKeepsGoodAcrossTargets: what Envoy runs is not forgotten when the plane
// wants something else that Envoy has not accepted.
func TestMemoryKeepsGoodAcrossTargets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	m, _ := recall(t, path)
	c1, c2 := gatetest.Cluster(t, "c1", "s1", 1), gatetest.Cluster(t, "c1", "s1", 2)
	write(t, m, memoryBatch{revision: at(1, 1), target: []delta.Change{c1}, good: []delta.Change{c1}})
	write(t, m, memoryBatch{revision: at(1, 2), target: []delta.Change{c2}})
	_, r := recall(t, path)
	if len(r.good) != 1 || r.good[0].Resource.Version != c1.Resource.Version || !proto.Equal(r.good[0].Resource.Body, c1.Resource.Body) {
		t.Errorf("good is %+v", r.good)
	}
}

func TestMemoryStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	m, _ := recall(t, path)
	for i := range 40 {
		c := gatetest.Cluster(t, "c1", strings.Repeat("s", 100_000), i+1)
		write(t, m, memoryBatch{revision: at(1, uint64(i+1)), target: []delta.Change{c}, good: []delta.Change{c}})
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > compactFloor+200_000 || info.Size() != m.file.Size() {
		t.Errorf("%d bytes, %d known, %v", info.Size(), m.file.Size(), err)
	}
	if _, r := recall(t, path); r.revision != at(1, 40) || r.text() != m.remembered().text() {
		t.Errorf("read %s", r.text())
	}
}

// written is a file of history, where its records end and the state after each.
func written(t *testing.T) (data []byte, ends []int, states []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state")
	m, r := recall(t, path)
	ends, states = []int{len(memoryHeader)}, []string{r.text()}
	for _, batches := range history(t) {
		write(t, m, batches...)
		ends, states = append(ends, int(m.file.Size())), append(states, m.remembered().text())
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) != ends[len(ends)-1] {
		t.Fatalf("%d bytes: %v", len(data), err)
	}
	if len(slices.Compact(slices.Clone(states))) != len(states) {
		t.Fatal("states do not differ")
	}
	return data, ends, states
}

// check opens data at path: it must give the state, an error as wanted, and, if that
// is to be tried, go on from there.
func check(t *testing.T, what, path string, data []byte, state string, damaged, onward bool) {
	t.Helper()
	_ = os.Remove(path) // ext4 writes a file that is emptied and filled again to the disk
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, r, err := openMemory(path)
	defer m.close()
	if damaged != errors.Is(err, record.ErrDamaged) || !damaged && err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if damaged && !strings.Contains(err.Error(), path) {
		t.Fatalf("%s: which file? %v", what, err)
	}
	if r.text() != state {
		t.Fatalf("%s: read\n%s\nwant\n%s", what, r.text(), state)
	}
	whole, err := restore(idle(t, Config{}), r)
	if has := strings.Contains(state, string(typeCheckpoint)); whole != has || err != nil {
		t.Fatalf("%s: restored, whole %v: %v", what, whole, err)
	}
	if !onward {
		return
	}
	write(t, m, memoryBatch{revision: at(9, 9), target: []delta.Change{gatetest.Cluster(t, "c9", "s9", 1)}})
	if _, again := recall(t, path); again.revision != at(9, 9) || len(again.target) != len(r.target)+1 || again.text() != m.remembered().text() {
		t.Fatalf("%s: after one more write there is\n%s", what, again.text())
	}
}

// each so many bytes the state that was read is written on; that waits for the disk.
const each = 211

func TestMemoryCutShort(t *testing.T) {
	data, ends, states := written(t)
	path := filepath.Join(t.TempDir(), "state")
	for n := range len(data) + 1 {
		record := 0
		for record+1 < len(ends) && ends[record+1] <= n {
			record++
		}
		check(t, fmt.Sprintf("%d of %d bytes", n, len(data)), path, data[:n], states[record], n != ends[record], n%each == 0 || n == ends[record])
	}
}

func TestMemoryFlippedBytes(t *testing.T) {
	data, ends, states := written(t)
	path := filepath.Join(t.TempDir(), "state")
	for n := range data {
		record := 0
		for record+1 < len(ends) && ends[record+1] <= n {
			record++
		}
		bad, flip := bytes.Clone(data), []byte{0x01, 0xff}[n%2]
		bad[n] ^= flip
		check(t, fmt.Sprintf("byte %d of %d", n, len(data)), path, bad, states[record], true, n%each == 0)
	}
}

// FuzzMemoryRecord: a record whose checksum holds, with anything in it, is read or
// refused; what is read can be restored and written again.
func FuzzMemoryRecord(f *testing.F) {
	encoder := &memory{target: map[key]*delta.Resource{}, good: map[key]*delta.Resource{}}
	whole, err := encoder.encode(nil, memoryBatch{
		revision: at(1, 1), target: []delta.Change{gatetest.Cluster(f, "c1", "s1", 1), gatetest.Removal(typeRoute, "r1"), checkpointAt(f, at(1, 1))},
		good: []delta.Change{gatetest.Cluster(f, "c1", "s1", 1)},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	for _, resp := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: string(typeCluster), Nonce: partTarget, SystemVersionInfo: "1/1", Resources: []*discoveryv3.Resource{{Name: "c1", Version: "1"}}},
		{TypeUrl: string(typeRoute), Nonce: partGood, SystemVersionInfo: "1/1", Resources: []*discoveryv3.Resource{{Version: "1"}}},
		{TypeUrl: "unknown", Nonce: partTarget, SystemVersionInfo: "1/1", Resources: []*discoveryv3.Resource{{Name: "x"}}},
		{TypeUrl: string(typeCluster), Nonce: "neither", SystemVersionInfo: "1/1"},
		{TypeUrl: string(typeCluster), Nonce: partTarget, SystemVersionInfo: "soon"},
	} {
		encoded, err := proto.Marshal(resp)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append([]byte{byte(len(encoded))}, encoded...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "state")
		if err := os.WriteFile(path, append([]byte(memoryHeader), record.Frame(data)...), 0o600); err != nil {
			t.Fatal(err)
		}
		m, r, err := openMemory(path)
		defer m.close()
		if err != nil && !errors.Is(err, record.ErrDamaged) {
			t.Fatal(err)
		}
		_, _ = restore(idle(t, Config{}), r)
		spoil(t, m.file, path)
		write(t, m, memoryBatch{revision: r.revision})
		if _, again := recall(t, path); again.text() != m.remembered().text() {
			t.Fatalf("wrote\n%s\nread\n%s", m.remembered().text(), again.text())
		}
	})
}

// spoil has the file miss a write, so that the next one makes it anew.
func spoil(t *testing.T, f *record.File, path string) {
	t.Helper()
	f.Close()
	rename(t, path, path+".away")
	if err := f.Append([]byte("lost")); err == nil {
		t.Fatal("it was written into a file that is not there")
	}
	rename(t, path+".away", path)
}

// TestMemoryThatCannotBeWritten: it is said, the agent's state goes on, and once there
// is room everything is there.
func TestMemoryThatCannotBeWritten(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil, mend func(t *testing.T, path string)
		says        string
	}{
		"full before the first write": {
			spoil: func(t *testing.T, path string) { full(t, path+".new") },
			mend:  func(*testing.T, string) {},
			says:  "no space left",
		},
		"no directory": {
			spoil: func(t *testing.T, path string) { rename(t, filepath.Dir(path), filepath.Dir(path)+".away") },
			mend:  func(t *testing.T, path string) { rename(t, filepath.Dir(path)+".away", filepath.Dir(path)) },
			says:  "no such file or directory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			k, s := keptState(t, dir, t.TempDir())
			receive(t, s, responseOf(t, at(1, 1), gatetest.Cluster(t, "c1", "s1", 1)), responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
			path := filepath.Join(dir, stateFile)
			tt.spoil(t, path)
			if k.flush() {
				t.Fatal("it says that it was written")
			}
			if err := k.healthy(); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("it says %v", err)
			}
			if s.relay.waits() != nil {
				t.Errorf("it does not serve: %v", s.relay.waits())
			}
			receive(t, s, responseOf(t, at(1, 2), gatetest.Cluster(t, "c2", "s2", 1)), responseOf(t, at(1, 2), checkpointAt(t, at(1, 2))))
			tt.mend(t, path)
			remembers(t, k, s, path, "c1", "c2")
		})
	}
}

// TestMemoryFullWhileAppending: an append that went wrong, half of it written, say,
// is followed by a file that is made anew.
func TestMemoryFullWhileAppending(t *testing.T) {
	dir := t.TempDir()
	k, s := keptState(t, dir, t.TempDir())
	receive(t, s, responseOf(t, at(1, 1), gatetest.Cluster(t, "c1", "s1", 1)), responseOf(t, at(1, 1), checkpointAt(t, at(1, 1))))
	if !k.flush() {
		t.Fatal(k.healthy())
	}
	path := filepath.Join(dir, stateFile)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	k.state.close() // so that the next record goes to where the path leads
	rename(t, path, path+".kept")
	full(t, path)
	receive(t, s, responseOf(t, at(1, 2), gatetest.Cluster(t, "c2", "s2", 1)))
	if k.flush() || !errors.Is(k.healthy(), syscall.ENOSPC) {
		t.Fatalf("it says %v", k.healthy())
	}
	rename(t, path+".kept", path)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old state is gone: %v", err)
	}
	full(t, path+".new") // making it anew needs room too
	if k.flush() || !errors.Is(k.healthy(), syscall.ENOSPC) {
		t.Fatalf("it says %v", k.healthy())
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the old state is gone: %v", err)
	}
	remembers(t, k, s, path, "c1", "c2")
}

// TestSecretsAreApart: private keys are remembered where no disk is.
func TestSecretsAreApart(t *testing.T) {
	dataDir, runDir := t.TempDir(), t.TempDir()
	k, s := keptState(t, dataDir, runDir)
	const private = "the private key"
	secret := gatetest.Pack(t, "tls", &tlsv3.Secret{Name: "tls", Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		PrivateKey: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: private}},
	}}})
	receive(t, s,
		responseOf(t, at(1, 1), gatetest.Cluster(t, "c1", "s1", 1)),
		responseOf(t, at(1, 1), delta.Change{Type: typeSecret, Name: "tls", Resource: secret}))
	if !k.flush() {
		t.Fatal(k.healthy())
	}
	for path, want := range map[string]bool{filepath.Join(dataDir, stateFile): false, filepath.Join(runDir, "secrets"): true} {
		data, err := os.ReadFile(path)
		if err != nil || bytes.Contains(data, []byte(private)) != want {
			t.Errorf("%s has the key: %v, want %v (%v)", path, !want, want, err)
		}
	}
}

// keptState is an agent that keeps what it receives below two directories, and its keeper.
func keptState(t *testing.T, dataDir, runDir string) (*keeper, *Agent) {
	t.Helper()
	a := idle(t, Config{})
	a.keeper.open(dataDir, runDir)
	t.Cleanup(a.keeper.state.close)
	t.Cleanup(a.keeper.secret.close)
	return a.keeper, a
}

func receive(t *testing.T, a *Agent, responses ...*discoveryv3.DeltaDiscoveryResponse) {
	t.Helper()
	for _, resp := range responses {
		if err := a.desired.receive(resp); err != nil {
			t.Fatal(err)
		}
	}
}

// remembers flushes and looks whether the file at path holds what the agent accepted.
func remembers(t *testing.T, k *keeper, a *Agent, path string, clusters ...string) {
	t.Helper()
	if !k.flush() || k.healthy() != nil {
		t.Fatalf("it still says %v", k.healthy())
	}
	_, r := recall(t, path)
	var got []string
	for _, c := range r.target {
		if c.Type == typeCluster {
			got = append(got, c.Name)
		}
	}
	if accepted := a.desired.latest().revision; !slices.Equal(got, clusters) || r.revision != accepted {
		t.Errorf("clusters %v at %s, want %v at %s", got, r.revision, clusters, accepted)
	}
}

// full makes every write to path fail as on a full disk.
func full(t *testing.T, path string) {
	t.Helper()
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}
