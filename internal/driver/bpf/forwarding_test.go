package bpf

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLoopbackForwards(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "net/ipv4/conf/lo/forwarding")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // without IPv6, and again
		if err := AllowLookups(dir, "that costs more"); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "1" && string(text) != "1\n" {
			t.Errorf("it is %q, %v", text, err)
		}
	}
	bad := filepath.Join(dir, "net/ipv6/conf/lo/forwarding")
	if err := os.MkdirAll(bad, 0o700); err != nil { // a directory cannot be read as a file
		t.Fatal(err)
	}
	if err := AllowLookups(dir, "that costs more"); err == nil {
		t.Error("what cannot be set is not said")
	}
}
