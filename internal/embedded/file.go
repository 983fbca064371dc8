package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const tempPrefix = ".tmp-"

// writeFile replaces path by data, so that a reader or a crash sees the old content or the new
// one and never a part. The file is readable by its owner only.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	if _, err := f.Write(data); err != nil {
		f.Close()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return commitFile(f, path)
}

// commitFile syncs and closes f, a temporary file in path's directory, and gives it its name.
func commitFile(f *os.File, path string) error {
	err := errors.Join(f.Chmod(0o600), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// syncTree makes every file and directory under dir durable.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path)
	})
}

// removeTemporaries removes what we left behind in dir when we were killed. The caller holds the lock.
func removeTemporaries(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// prepareDir makes dir exist, private to this user and writable, or says why it cannot be.
func prepareDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made: %w (choose another with --data-dir, or run as a user who may write there)", dir, err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s cannot be made private: %w (it must belong to the user who runs this)", dir, err)
	}
	probe, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return fmt.Errorf("data directory %s is not writable: %w (choose another with --data-dir, or run as a user who may write there)", dir, err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}

// freeSpace returns the bytes that an ordinary user may still write to dir's file system.
func freeSpace(dir string) (uint64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}
