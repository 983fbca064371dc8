package embedded

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// TestFirstStartThatWasKilled makes the files that a kill during etcd's first start leaves: a
// log without members, or with members that are not committed.
func TestFirstStartThatWasKilled(t *testing.T) {
	for name, entries := range map[string][]raftpb.Entry{
		"empty log":   nil,
		"uncommitted": {{Term: 1, Index: 1, Type: raftpb.EntryConfChange}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			logs := filepath.Join(etcdDir(dir), "member", "wal")
			if err := os.MkdirAll(filepath.Join(etcdDir(dir), "member", "snap"), 0o700); err != nil {
				t.Fatal(err)
			}
			who, err := (&etcdserverpb.Metadata{NodeID: 1, ClusterID: 2}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			w, err := wal.Create(zap.NewNop(), logs, who)
			if err != nil {
				t.Fatal(err)
			}
			if entries != nil {
				if err := w.Save(raftpb.HardState{Term: 1}, entries); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			testStore(t, dir, defaultEtcdQuota, mebibyte)
			if _, err := dialStore(t, dir).Put(t.Context(), "/a", "b"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDiscardUnbornKeepsWhatWasBorn holds that nothing is removed of a database that was ready
// once, nor of one whose log cannot be read.
func TestDiscardUnbornKeepsWhatWasBorn(t *testing.T) {
	dir := t.TempDir()
	c := storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now}
	s, err := startStore(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socketPath(dir)}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), "/a", "b"); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := tree(t, etcdDir(dir))
	if err := discardUnborn(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, etcdDir(dir)); !slices.Equal(after, before) {
		t.Errorf("there is %v left of %v", after, before)
	}
	segments, err := filepath.Glob(filepath.Join(etcdDir(dir), "member", "wal", "*.wal"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("no log: %v", err)
	}
	f, err := os.OpenFile(segments[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(f, "this is no log at all"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := discardUnborn(dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, etcdDir(dir)); !slices.Equal(after, before) {
		t.Errorf("there is %v left of %v, whose log is damaged", after, before)
	}
}

// tree lists what is below a directory.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		found = append(found, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
