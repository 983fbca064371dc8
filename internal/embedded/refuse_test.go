package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func testLog(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

func TestStartRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	busyPort := uint16(busy.Addr().(*net.TCPAddr).Port)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for _, test := range []struct {
		name   string
		config Config
		says   []string
	}{
		{"no log", Config{DataDir: t.TempDir()}, []string{"Log is required"}},
		{"no data directory", Config{Log: testLog(t)}, []string{"DataDir is required"}},
		{"a file in the way", Config{DataDir: filepath.Join(file, "data"), Log: testLog(t)}, []string{"data directory", "cannot be made", "--data-dir"}},
		{
			"a path too long for a socket",
			Config{DataDir: filepath.Join(t.TempDir(), strings.Repeat("x", 100)), Log: testLog(t)},
			[]string{"too long", "a unix socket allows 107"},
		},
		{
			"port in use",
			Config{DataDir: t.TempDir(), Port: busyPort, Log: testLog(t)},
			[]string{fmt.Sprintf("port %d on 127.0.0.1 is in use", busyPort), "--api-port"},
		},
		{
			"an address of another machine",
			Config{DataDir: t.TempDir(), BindAddress: netip.MustParseAddr("192.0.2.1"), Log: testLog(t)},
			[]string{"192.0.2.1 is not an address of this machine"},
		},
		{
			"advertising no address",
			Config{DataDir: t.TempDir(), AdvertiseAddress: netip.IPv6Unspecified(), Log: testLog(t)},
			[]string{"advertise address ::", "give one of this machine's"},
		},
		{
			"not a URL",
			Config{DataDir: t.TempDir(), EtcdServers: []string{"10.0.0.1:2379"}, Log: testLog(t)},
			[]string{`etcd server "10.0.0.1:2379"`, "--etcd-servers"},
		},
		{"half a client certificate", Config{DataDir: t.TempDir(), EtcdCertFile: "x", Log: testLog(t)}, []string{"both its certificate file and its key file"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Start(t.Context(), test.config)
			wantError(t, err, test.says...)
		})
	}
}

func TestStartRefusesAReadOnlyDirectory(t *testing.T) {
	dir := smallDisk(t, 4)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Skipf("remounting is not allowed here: %v", err)
	}
	_, err := Start(t.Context(), Config{DataDir: filepath.Join(dir, "data"), Log: testLog(t)})
	wantError(t, err, "data directory "+dir, "read-only file system", "--data-dir")
}

func TestStartSaysThatEtcdDoesNotAnswer(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	dir := t.TempDir()
	_, err = Start(t.Context(), Config{DataDir: dir, EtcdServers: []string{"http://" + addr}, Log: testLog(t)})
	wantError(t, err, "etcd at http://"+addr+" does not answer", "--etcd-servers")
	// What was refused left nothing behind that keeps the next one out.
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close()
}

func TestOneServerAProcess(t *testing.T) {
	s := shared.get(t)
	_, err := Start(t.Context(), Config{DataDir: t.TempDir(), Log: testLog(t)})
	wantError(t, err, "another kubernetes api runs in this process")
	if err := s.Healthy(t.Context()); err != nil {
		t.Errorf("the first one suffered: %v", err)
	}
}

func TestLockNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(dir)
	wantError(t, err, dir, fmt.Sprintf("process %d", os.Getpid()), "--data-dir")
	if !errors.Is(err, ErrLocked) {
		t.Errorf("%v is not ErrLocked", err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err = lockDir(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	lock.Close()
}

func TestWriteFileReplacesAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	for _, content := range []string{"one", "two"} {
		if err := writeFile(path, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != content {
			t.Errorf("read %q, %v, want %q", b, err, content)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, tempPrefix+"left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := removeTemporaries(dir); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory holds %v, error %v", entries, err)
	}
}

func TestKubeconfigHasTheWayForOthers(t *testing.T) {
	p, err := openPKI(pkiConfig(t, t.TempDir(), today))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	local, remote := netip.MustParseAddrPort("[::1]:6443"), netip.MustParseAddrPort("192.0.2.1:6443")
	if err := p.writeKubeconfig(path, local, remote); err != nil {
		t.Fatal(err)
	}
	if got := loadKubeconfig(t, path).Host; got != "https://[::1]:6443" {
		t.Errorf("the current context leads to %s", got)
	}
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), "https://192.0.2.1:6443") || !strings.Contains(string(b), "fairlead-remote") {
		t.Errorf("no way for others, error %v", err)
	}
	if err := p.writeKubeconfig(path, local, local); err != nil {
		t.Fatal(err)
	}
	if b, err = os.ReadFile(path); err != nil || strings.Contains(string(b), "fairlead-remote") {
		t.Errorf("two ways to the same address, error %v", err)
	}
}
