package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

func testStore(t *testing.T, dir string, quota int64, reserve uint64) *store {
	t.Helper()
	s, err := startStore(t.Context(), storeConfig{dataDir: dir, quota: quota, reserve: reserve, log: slog.New(slog.NewTextHandler(t.Output(), nil)), now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func dialStore(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + socketPath(dir)}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// smallDisk is a file system of its own of this many MiB.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+strconv.Itoa(mib)+"m"); err != nil {
		t.Skipf("mounting a small file system is not allowed here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// leave fills dir's file system but for this many bytes and returns how to give them back. Others
// may write meanwhile.
func leave(t *testing.T, dir string, bytes uint64) (release func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size := int64(0)
	for {
		free, err := freeSpace(dir)
		if err != nil {
			t.Fatal(err)
		}
		if free <= bytes {
			break
		}
		more := int64(free - bytes)
		err = unix.Fallocate(int(f.Fd()), 0, size, more)
		switch {
		case err == nil:
			size += more
		case !errors.Is(err, unix.ENOSPC):
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFullDatabaseRefusesWritesAndRecovers(t *testing.T) {
	dir := t.TempDir()
	s := testStore(t, dir, 8*mebibyte, mebibyte)
	c := dialStore(t, dir)
	value := strings.Repeat("x", 256<<10)
	// etcd learns of its size with its commits, ten a second, and counts pages that a commit has
	// freed: a database that is refused may still be one that can be rewritten.
	for n := 0; !errors.Is(s.healthy(), ErrDatabaseFull); n++ {
		if n == 1000 {
			t.Fatalf("health is %v, want that the database is full", s.healthy())
		}
		_, err := c.Put(t.Context(), fmt.Sprintf("/full/%03d", n), value)
		if err == nil {
			continue
		}
		wantError(t, err, "database space exceeded")
		if err := s.checkSpace(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Put(t.Context(), "/full/more", value)
	wantError(t, err, "database space exceeded")
	if r, err := c.Get(t.Context(), "/full/000"); err != nil || r.Count != 1 {
		t.Errorf("reads stopped as well: %v", err)
	}
	if _, err := c.Delete(t.Context(), "/full/", clientv3.WithPrefix()); err != nil {
		t.Fatalf("deletions are refused as well: %v", err)
	}
	// etcd frees space some time after it was told to; the server looks again and again.
	for deadline := time.Now().Add(20 * time.Second); ; {
		if err := s.checkSpace(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := s.healthy()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after the deletion health is %v", err)
		}
	}
	if _, err := c.Put(t.Context(), "/full/again", value); err != nil {
		t.Errorf("after the deletion a write is refused: %v", err)
	}
}

func TestFullDiskRefusesWritesAndRecovers(t *testing.T) {
	dir := smallDisk(t, 256)
	const reserve = 32 * mebibyte
	s := testStore(t, dir, defaultEtcdQuota, reserve)
	c := dialStore(t, dir)
	if _, err := c.Put(t.Context(), "/disk/before", "kept"); err != nil {
		t.Fatal(err)
	}
	release := leave(t, dir, reserve/2)
	if err := s.checkSpace(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := s.healthy()
	wantError(t, err, "disk full", dir, "MiB free", "writes are refused until 40 MiB are")
	if !errors.Is(err, ErrDiskFull) {
		t.Errorf("%v is not ErrDiskFull", err)
	}
	_, err = c.Put(t.Context(), "/disk/during", "refused")
	wantError(t, err, "database space exceeded")
	if r, err := c.Get(t.Context(), "/disk/before"); err != nil || r.Count != 1 {
		t.Errorf("reads stopped as well: %v", err)
	}
	release()
	if err := s.checkSpace(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.healthy(); err != nil {
		t.Errorf("with space again health is %v", err)
	}
	if _, err := c.Put(t.Context(), "/disk/after", "taken"); err != nil {
		t.Errorf("with space again a write is refused: %v", err)
	}
}

func TestFullDiskIsWatched(t *testing.T) {
	dir := smallDisk(t, 256)
	s := testStore(t, dir, defaultEtcdQuota, 32*mebibyte)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.tend(ctx)
		close(ended)
	}()
	release := leave(t, dir, 16*mebibyte)
	eventually(t, "the full disk is seen", func() error {
		if err := s.healthy(); !errors.Is(err, ErrDiskFull) {
			return fmt.Errorf("not seen, health is: %w", errors.Join(err))
		}
		return nil
	})
	release()
	eventually(t, "the space is seen", s.healthy)
	cancel()
	<-ended
}

func TestStartRefusesAFullDisk(t *testing.T) {
	dir := smallDisk(t, 256)
	release := leave(t, dir, 8*mebibyte)
	c := storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: 32 * mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now}
	_, err := startStore(t.Context(), c)
	wantError(t, err, "disk full", dir, "8 MiB free", "needs 32 MiB")
	release()
	s, err := startStore(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// Somebody fills the disk faster than anybody can watch: etcd gives up, which must end in an error
// that says so and not in a silent exit, and nothing acknowledged may be gone afterwards.
func TestDiskFilledAtOnceLosesNothing(t *testing.T) {
	dir := smallDisk(t, 256)
	c := startChild(t, childSpec{Role: "fill", DataDir: dir})
	acked := 0
	next := func() bool {
		if !c.lines.Scan() {
			return false
		}
		n, err := strconv.Atoi(c.lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		acked = n
		return true
	}
	for acked < 20 {
		if !next() {
			t.Fatalf("the child ended early\n%s", c.stderr.String())
		}
	}
	release := leave(t, dir, 0)
	for next() {
	}
	if err := c.cmd.Wait(); err == nil {
		t.Error("the child ended without an error")
	}
	if log := c.stderr.String(); !strings.Contains(log, "child ended") || !strings.Contains(log, "disk full") {
		t.Errorf("the child does not say that the disk is full:\n%s", log)
	}
	release()
	testStore(t, dir, defaultEtcdQuota, mebibyte)
	r, err := dialStore(t, dir).Get(t.Context(), "/fill/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if r.Count < int64(acked) {
		t.Errorf("%d keys of %d acknowledged ones are there", r.Count, acked)
	}
}

// childFill writes numbered keys, and the number of those acknowledged to stdout, until etcd gives up.
func childFill(spec childSpec, log *slog.Logger) error {
	gaveUp := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := startStore(ctx, storeConfig{dataDir: spec.DataDir, quota: defaultEtcdQuota, reserve: mebibyte, log: log, now: time.Now, onFatal: func(err error) {
		gaveUp <- err
		cancel()
	}})
	if err != nil {
		return err
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	value := strings.Repeat("x", 128<<10)
	for n := 1; ; n++ {
		if _, err := c.Put(ctx, fmt.Sprintf("/fill/%06d", n), value); err != nil {
			select {
			case err := <-gaveUp:
				return err
			case <-time.After(patience):
				return fmt.Errorf("writes fail but etcd did not give up: %w", err)
			}
		}
		fmt.Println(n)
	}
}

func TestDefragmentGivesSpaceBack(t *testing.T) {
	dir := t.TempDir()
	s := testStore(t, dir, defaultEtcdQuota, mebibyte)
	c := dialStore(t, dir)
	value := strings.Repeat("x", 512<<10)
	for n := range 40 {
		if _, err := c.Put(t.Context(), fmt.Sprintf("/frag/%03d", n), value); err != nil {
			t.Fatal(err)
		}
	}
	r, err := c.Delete(t.Context(), "/frag/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	s.etcd.Server.Backend().ForceCommit()
	before := s.etcd.Server.Backend().Size()
	if err := s.defragment(defragMinimum); err != nil {
		t.Fatal(err)
	}
	if got := s.etcd.Server.Backend().Size(); got != before {
		t.Errorf("a database of %d bytes, below the minimum, was rewritten to %d", before, got)
	}
	// What a compaction freed is known when the transactions that read it have ended.
	got := before
	for deadline := time.Now().Add(30 * time.Second); got > before/2 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		s.etcd.Server.Backend().ForceCommit()
		if err := s.defragment(mebibyte); err != nil {
			t.Fatal(err)
		}
		got = s.etcd.Server.Backend().Size()
	}
	if got > before/2 {
		t.Errorf("the database has %d bytes after, %d before", got, before)
	}
}

// leftToEtcd is a directory for an etcd that gives up: its goroutines cannot be stopped and may still create a
// file there, so the removal is tried until they rest.
func leftToEtcd(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fairlead-etcd-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			err := os.RemoveAll(dir)
			if err == nil {
				return
			}
			if time.Now().After(end) {
				t.Errorf("remove %s: %v", dir, err)
				return
			}
		}
	})
	return dir
}

func TestDamagedDatabaseIsAnErrorNotAnExit(t *testing.T) {
	dir := leftToEtcd(t)
	c := storeConfig{dataDir: dir, quota: defaultEtcdQuota, reserve: mebibyte, log: slog.New(slog.DiscardHandler), now: time.Now}
	s, err := startStore(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wal, err := filepath.Glob(filepath.Join(etcdDir(dir), "member", "wal", "*.wal"))
	if err != nil || len(wal) == 0 {
		t.Fatalf("no log: %v", err)
	}
	f, err := os.OpenFile(wal[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte(strings.Repeat("\xff", 4096)), 0); err != nil {
		t.Fatal(err)
	}
	f.Close()
	_, err = startStore(t.Context(), c)
	wantError(t, err, "start etcd on "+dir)
}

func TestExplainNamesAFullDisk(t *testing.T) {
	s := &store{storeConfig: storeConfig{dataDir: "/data"}}
	err := s.explain(fmt.Errorf("etcd gave up: %w", syscall.ENOSPC))
	wantError(t, err, "disk full", "free some space on the file system of /data")
}
