package embedded

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// member is one file of a tar.
type member struct {
	name string
	data []byte
}

func readTar(t *testing.T, file string) []member {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var members []member
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, member{h.Name, b})
	}
}

func writeTar(t *testing.T, members []member) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m.name, Mode: 0o600, Size: int64(len(m.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "changed.tar")
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// smallBackup is the backup of a data directory in which one key has one value.
func smallBackup(t *testing.T, dir, value string) string {
	t.Helper()
	if _, err := openPKI(pkiConfig(t, dir, today)); err != nil {
		t.Fatal(err)
	}
	s, err := startStore(t.Context(), storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dialStore(t, dir).Put(t.Context(), "/key", value); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.tar")
	if err := backup(t.Context(), dir, file, "v1.2.3-test", func() time.Time { return today }); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestBackupSaysWhatItIs(t *testing.T) {
	file := smallBackup(t, t.TempDir(), "v")
	m, err := manifestOf(file)
	if err != nil {
		t.Fatal(err)
	}
	if !m.Created.Equal(today) || m.Format != backupFormat || m.Host == "" || m.Fairlead != "v1.2.3-test" {
		t.Errorf("manifest %+v", m)
	}
	names := map[string]bool{}
	for _, f := range m.Files {
		names[f.Name] = f.Size > 0 && len(f.SHA256) == 64
	}
	for _, want := range []string{"etcd.db", "pki/ca.crt", "pki/ca.key", "pki/sa.key", "pki/front-proxy-ca.key"} {
		if !names[want] {
			t.Errorf("the backup lacks %s: %v", want, names)
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("beside the backup there is %v, %v", left, err)
	}
}

func TestRestoreRefusesDamagedBackups(t *testing.T) {
	good := readTar(t, smallBackup(t, t.TempDir(), "v"))
	change := func(f func(m []member) []member) []member {
		c := make([]member, len(good))
		for i, m := range good {
			c[i] = member{m.name, bytes.Clone(m.data)}
		}
		return f(c)
	}
	manifest := func(f func(*Manifest)) func([]member) []member {
		return func(m []member) []member {
			var mf Manifest
			if err := json.Unmarshal(m[0].data, &mf); err != nil {
				t.Fatal(err)
			}
			f(&mf)
			var err error
			if m[0].data, err = json.Marshal(mf); err != nil {
				t.Fatal(err)
			}
			return m
		}
	}
	for _, test := range []struct {
		name    string
		members []member
		says    string
	}{
		{"a bit flipped in the database", change(func(m []member) []member { m[1].data[len(m[1].data)/2] ^= 1; return m }), "etcd.db is not what its manifest says"},
		{"a key changed", change(func(m []member) []member { m[len(m)-1].data[60] ^= 1; return m }), "is not what its manifest says"},
		{"a member missing", change(func(m []member) []member { return m[:len(m)-1] }), "cut short before"},
		{"a member too many", change(func(m []member) []member { return append(m, member{"pki/more", []byte("x")}) }), "pki/more is not in its manifest"},
		{"members exchanged", change(func(m []member) []member { m[2], m[3] = m[3], m[2]; return m }), "in the place of"},
		{"no manifest", change(func(m []member) []member { return m[1:] }), "not a backup"},
		{"a later format", change(manifest(func(m *Manifest) { m.Format = "fairlead-backup/2" })), `format is "fairlead-backup/2"`},
		{"a path that leads out", change(manifest(func(m *Manifest) { m.Files[1].Name = "pki/../../escape" })), "does not belong in a backup"},
		{"no database", change(manifest(func(m *Manifest) { m.Files = m.Files[1:] })), "names no database"},
	} {
		t.Run(test.name, func(t *testing.T) {
			refuses(t, writeTar(t, test.members), test.says)
		})
	}
	whole, err := os.ReadFile(writeTar(t, good))
	if err != nil {
		t.Fatal(err)
	}
	for _, parts := range []int{1000, 10, 4, 2} {
		t.Run("cut to 1/"+strconv.Itoa(parts), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "cut.tar")
			if err := os.WriteFile(path, whole[:len(whole)/parts], 0o600); err != nil {
				t.Fatal(err)
			}
			refuses(t, path, "")
		})
	}
}

// refuses checks that a restore from file fails and leaves everything as it was.
func refuses(t *testing.T, file, says string) {
	t.Helper()
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantError(t, Restore(t.Context(), dir, file, nil), says, "restore "+dir)
	if b, err := os.ReadFile(filepath.Join(dir, "precious")); err != nil || string(b) != "old" {
		t.Errorf("the old directory changed: %q, %v", b, err)
	}
	entries, err := os.ReadDir(parent)
	if err != nil || len(entries) != 1 {
		t.Errorf("the restore left %v, %v", entries, err)
	}
}

func TestRestoreMovesAsideAndRaisesRevisions(t *testing.T) {
	file := smallBackup(t, t.TempDir(), "backed up")
	dir := filepath.Join(t.TempDir(), "data")
	revisions := []int64{0}
	for i, now := range []time.Time{today, today.Add(time.Minute), today.Add(2 * time.Minute)} {
		if err := restore(t.Context(), dir, file, now, nil); err != nil {
			t.Fatal(err)
		}
		aside, err := filepath.Glob(dir + ".before-restore-*")
		if err != nil || len(aside) != i {
			t.Errorf("after restore %d: moved aside %v, %v", i+1, aside, err)
		}
		s, err := startStore(t.Context(), storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		c := dialStore(t, dir)
		r, err := c.Get(t.Context(), "/key")
		if err != nil {
			t.Fatal(err)
		}
		if r.Count != 1 || string(r.Kvs[0].Value) != "backed up" {
			t.Errorf("restored %v", r.Kvs)
		}
		if r.Header.Revision <= revisions[len(revisions)-1] {
			t.Errorf("revision %d after %v", r.Header.Revision, revisions)
		}
		for range 50 {
			put, err := c.Put(t.Context(), "/key", "changed")
			if err != nil {
				t.Fatal(err)
			}
			revisions = append(revisions, put.Header.Revision)
		}
		if err := s.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(dir + ".restoring-*"); err != nil || len(left) != 0 {
		t.Errorf("staging left: %v, %v", left, err)
	}
}

func TestRestoreThatIsInterrupted(t *testing.T) {
	file := smallBackup(t, t.TempDir(), "v")
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, Restore(ctx, dir, file, nil), "context canceled")
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory is there: %v", err)
	}
}

func TestBackupRefuses(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "b.tar")
	wantError(t, Backup(t.Context(), t.TempDir(), file, "v1.2.3"), "holds no plane's data")

	dir := t.TempDir()
	if _, err := openPKI(pkiConfig(t, dir, today)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(etcdDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	wantError(t, Backup(ctx, dir, file, "v1.2.3"), "etcd does not answer", "process "+strconv.Itoa(os.Getpid()), "starting or stopping")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a file is there: %v", err)
	}
}

// manifestOf returns what the backup in file says about itself, without checking the rest.
func manifestOf(file string) (Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	return readManifest(tar.NewReader(f))
}
