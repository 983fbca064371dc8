package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "fairlead.dev/internal/console/v1"
	"fairlead.dev/lab/rig"
)

// TestDiskFull fills the file system under etcd. Writes are refused with the reason,
// reads and traffic go on, and free space heals it without anybody's help.
func TestDiskFull(t *testing.T) {
	s := newLab(t, "disk", client, edge1, os1, plane)
	m := s.Lab.Machine(plane.Name)
	dir, err := m.Dir("plane")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lab.RecordMount(dir); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=600m,mode=700"); err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context(), rig.PlaneOptions{}, "--drain-time", "1s"); err != nil {
		t.Fatal(err)
	}
	s.apply(t, exampleFiles(t)...)
	s.apply(t, namespace("disk"), service("disk", "a", s.backends["os1-a"]), service("disk", "b", s.backends["os1-b"]),
		httpRoute("disk", "app", "disk.example.com", to("a")))
	s.awaitConditions(t, "HTTPRoute disk/app", programmed)
	s.awaitAnswer(t, request{host: "disk.example.com"}, 200, "os1-a")
	f := s.startTraffic(t, "disk.example.com")

	filler := filepath.Join(dir, "filler")
	if err := fill(filler); err != nil {
		t.Fatal(err)
	}
	says := "disk full: " + dir + " has 0 MiB free: writes are refused until …MiB are"
	s.await(t, "the plane to say that the disk is full", func(ctx context.Context) error {
		err := s.Get(ctx, m, "http://127.0.0.1:7080/readyz")
		if err == nil {
			return errors.New("it is ready")
		}
		if !strings.Contains(err.Error(), "503") || !matches("…"+says+"…", err.Error()) {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	s.awaitProblem(t, v1.Problem{Severity: v1.SeverityError, Subject: "API", Reason: "Unhealthy", Message: "…" + says + "…"})
	_, err = s.plane.Kubectl(t.Context(), "", "-n", "disk", "create", "configmap", "more")
	if want := "failed to create configmap: etcdserver: mvcc: database space exceeded"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("kubectl on a full disk says %v, want %q", err, want)
	}
	if out := s.kubectl(t, "-n", "disk", "get", "httproutes", "-o", "name"); !strings.Contains(out, "app") {
		t.Errorf("kubectl get on a full disk says %q", out)
	}
	f.more(t, 300)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the plane to be ready again", func(ctx context.Context) error {
		return s.Get(ctx, m, "http://127.0.0.1:7080/readyz")
	})
	s.apply(t, httpRoute("disk", "app", "disk.example.com", to("b")))
	s.awaitConditions(t, "HTTPRoute disk/app", programmed)
	s.awaitAnswer(t, request{host: "disk.example.com"}, 200, "os1-b")
	s.await(t, "nothing to be wrong", func(ctx context.Context) error {
		status, err := s.plane.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range status.Problems {
			if p.Subject == "API" || strings.HasPrefix(p.Subject, "Plane ") || strings.HasPrefix(p.Subject, "Machine ") {
				return fmt.Errorf("there is %+v", p)
			}
		}
		return nil
	})
	f.none(t)
}

// fill writes until the file system has no space.
func fill(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); errors.Is(err, unix.ENOSPC) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
