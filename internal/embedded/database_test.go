package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// write puts pairs of keys and values below the API server's prefix into the database of dir; an
// empty value deletes.
func write(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	s, err := startStore(t.Context(), storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	c := dialStore(t, dir)
	for i := 0; i < len(pairs); i += 2 {
		key, value := storagePrefix+"/"+pairs[i], pairs[i+1]
		if value == "" {
			_, err = c.Delete(t.Context(), key)
		} else {
			_, err = c.Put(t.Context(), key, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wantKeys checks what a database holds below "boats/" and "ports/".
func wantKeys(t *testing.T, what string, d Database, want map[string]string) {
	t.Helper()
	found, err := d.Read(t.Context(), "boats/", "ports/")
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := map[string]string{}
	for key, value := range found {
		got[key] = string(value)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// TestRestoreIsApproved: before anything is touched it can be seen what the backup brings and what
// it replaces; who refuses finds everything as it was.
func TestRestoreIsApproved(t *testing.T) {
	dir := t.TempDir()
	if _, err := openPKI(pkiConfig(t, dir, today)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "boats/a", "1", "boats/b", "1", "ports/x", "1", "boatswain", "1", "ports/y", "1", "ports/y", "")
	file := filepath.Join(t.TempDir(), "backup.tar")
	if err := backup(t.Context(), dir, file, "v1.2.3-test", func() time.Time { return today }); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "boats/a", "", "boats/b", "2", "boats/c", "1")
	before := map[string]string{"boats/a": "1", "boats/b": "1", "ports/x": "1"}
	after := map[string]string{"boats/b": "2", "boats/c": "1", "ports/x": "1"}
	asked := 0
	look := func(_ context.Context, r Replacement) {
		asked++
		wantKeys(t, "what the backup brings", r.Restored, before)
		wantKeys(t, "what it replaces", r.Present, after)
		if !r.Backup.Created.Equal(today) {
			t.Errorf("the backup is of %s", r.Backup.Created)
		}
	}
	refused := errors.New("refused by a test")
	err := Restore(t.Context(), dir, file, func(ctx context.Context, r Replacement) (map[string][]byte, error) {
		look(ctx, r)
		return map[string][]byte{"note": nil}, refused
	})
	if !errors.Is(err, refused) {
		t.Fatalf("a restore that was refused ended with %v", err)
	}
	wantKeys(t, "after the refusal the database", databaseOf(dir), after)
	if left, err := filepath.Glob(dir + ".*"); err != nil || len(left) > 0 {
		t.Errorf("the refusal left %v, %v", left, err)
	}
	if err := Restore(t.Context(), dir, file, func(ctx context.Context, r Replacement) (map[string][]byte, error) {
		look(ctx, r)
		return map[string][]byte{"note": []byte("read me")}, nil
	}); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, "the restored database", databaseOf(dir), before)
	info, err := os.Stat(filepath.Join(dir, "note"))
	if err != nil || info.Size() != int64(len("read me")) || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the approval is %v, %v", info, err)
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestDamagedDatabaseIsAnError, and no more than that: a restore replaces it.
func TestDamagedDatabaseIsAnError(t *testing.T) {
	dir := t.TempDir()
	if _, err := openPKI(pkiConfig(t, dir, today)); err != nil {
		t.Fatal(err)
	}
	if _, err := databaseOf(dir).Read(t.Context(), "boats/"); !errors.Is(err, ErrNoDatabase) {
		t.Errorf("of none: %v", err)
	}
	write(t, dir, "boats/a", "1")
	file := databaseOf(dir).file
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	scrambled := append([]byte(nil), whole...)
	for i := 2 * page; i < len(scrambled); i++ {
		scrambled[i] = byte(i)
	}
	for name, content := range map[string][]byte{
		"empty": {}, "text": []byte("this is no database"), "both of its first pages": whole[:2*page], "scrambled": scrambled,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if found, err := databaseOf(dir).Read(t.Context(), "boats/"); err == nil {
				t.Errorf("read %v without an error", found)
			}
		})
	}
}
