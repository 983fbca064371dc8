package embedded

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// minimumBump is the least by which a restore raises the revision of the database.
const minimumBump = 1_000_000_000

// Replacement is what a restore is about to do: what the backup brings, and what it takes the
// place of. The databases can be read until the approval returns.
type Replacement struct {
	Backup            Manifest
	Restored, Present Database
}

// Approval looks at a replacement before anything is touched; with an error it is not done. The
// files that it returns, by name, are put into the restored data directory.
type Approval func(context.Context, Replacement) (files map[string][]byte, err error)

// Restore makes dataDir what the backup in file says, if approve, unless it is nil, agrees. A data
// directory that is there and not empty is moved to <dataDir>.before-restore-<time>; nothing is
// deleted. It refuses while a process runs on dataDir, and a file that is damaged or cut short,
// before it asks and touches anything; killed at any moment it leaves the old directory or the new
// one.
//
// Revisions of the restored database are above those of any before it, so that clients which
// remember newer ones, up to this moment, notice and list anew instead of missing changes.
func Restore(ctx context.Context, dataDir, file string, approve Approval) error {
	if err := restore(ctx, dataDir, file, time.Now(), approve); err != nil {
		return fmt.Errorf("restore %s from %s: %w", dataDir, file, err)
	}
	return nil
}

func restore(ctx context.Context, dataDir, file string, now time.Time, approve Approval) error {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(dataDir); err == nil {
		dataDir = target
	}
	stamp := now.UTC().Format("20060102T150405.000Z")
	staging, aside := dataDir+".restoring-"+stamp, dataDir+".before-restore-"+stamp
	if err := os.MkdirAll(filepath.Dir(dataDir), 0o755); err != nil {
		return err
	}

	// Claim the directory that is there, so that nobody starts on it while it is replaced.
	occupied := false
	switch entries, err := os.ReadDir(dataDir); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		occupied = len(entries) > 0
		lock, err := lockDir(dataDir)
		if err != nil {
			return err
		}
		defer lock.Close()
	}

	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	swapped := false
	defer func() {
		if !swapped {
			os.RemoveAll(staging)
		}
	}()
	manifest, err := unpackBackup(ctx, file, staging)
	if err != nil {
		return err
	}
	if approve != nil {
		r := Replacement{Backup: manifest, Restored: Database{filepath.Join(staging, databaseName)}, Present: databaseOf(dataDir)}
		if err := review(ctx, approve, r, staging); err != nil {
			return err
		}
	}
	if err := rebuildDatabase(staging, now); err != nil {
		return err
	}
	if err := syncTree(staging); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := swapDirs(staging, dataDir); err != nil {
		return err
	}
	swapped = true
	if err := syncDir(filepath.Dir(dataDir)); err != nil {
		return err
	}
	switch _, err := os.Stat(staging); {
	case errors.Is(err, fs.ErrNotExist): // there was nothing to move aside
		return nil
	case err != nil:
		return err
	case !occupied: // what was there held nothing but our lock
		return os.RemoveAll(staging)
	}
	if err := os.Rename(staging, aside); err != nil {
		return fmt.Errorf("the backup is in place, but the directory before it stays at %s: %w", staging, err)
	}
	return syncDir(filepath.Dir(dataDir))
}

// review has a replacement approved, and puts the files of the approval into dir.
func review(ctx context.Context, approve Approval, r Replacement, dir string) error {
	files, err := approve(ctx, r)
	if err != nil {
		return err
	}
	for name, data := range files {
		if err := writeFile(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	return nil
}

// swapDirs puts staging at dir in one step. What was at dir is at staging afterwards.
func swapDirs(staging, dir string) error {
	err := unix.Renameat2(unix.AT_FDCWD, staging, unix.AT_FDCWD, dir, unix.RENAME_EXCHANGE)
	switch {
	case errors.Is(err, unix.ENOENT):
		return os.Rename(staging, dir)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s is a mount point and cannot be replaced: restore to a directory below it, or unmount it: %w", dir, err)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("the file system of %s cannot exchange directories: move %s away and restore again: %w", dir, dir, err)
	case err != nil:
		return fmt.Errorf("exchange %s and %s: %w", staging, dir, err)
	}
	return nil
}

// unpackBackup writes the members of the backup to dir and verifies that they are all there, whole
// and what the manifest says, which it returns.
func unpackBackup(ctx context.Context, file, dir string) (Manifest, error) {
	f, err := os.Open(file)
	if err != nil {
		return Manifest{}, err
	}
	defer f.Close()
	r := tar.NewReader(f)
	m, err := readManifest(r)
	if err != nil {
		return m, err
	}
	for _, want := range m.Files {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		h, err := r.Next()
		if err != nil {
			return m, fmt.Errorf("the backup is cut short before %s: %w", want.Name, err)
		}
		if h.Name != want.Name || h.Typeflag != tar.TypeReg {
			return m, fmt.Errorf("the backup is damaged: it has %s in the place of %s", h.Name, want.Name)
		}
		if err := unpackFile(r, filepath.Join(dir, filepath.FromSlash(want.Name)), want); err != nil {
			return m, err
		}
	}
	if h, err := r.Next(); err == nil {
		return m, fmt.Errorf("the backup is damaged: %s is not in its manifest", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return m, fmt.Errorf("the backup is damaged at its end: %w", err)
	}
	return m, nil
}

func unpackFile(r io.Reader, path string, want ManifestFile) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, h), r)
	if err := errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("the backup is cut short in %s: %w", want.Name, err)
	}
	if n != want.Size || hex.EncodeToString(h.Sum(nil)) != want.SHA256 {
		return fmt.Errorf("the backup is damaged: %s is not what its manifest says", want.Name)
	}
	return nil
}

// rebuildDatabase makes etcd's directory in dir from the snapshot there and removes the snapshot.
func rebuildDatabase(dir string, now time.Time) (err error) {
	database := filepath.Join(dir, databaseName)
	defer func() {
		if r := recover(); r != nil { // etcd panics where it finds a snapshot damaged
			err = fmt.Errorf("the database in the backup is damaged: %v", r)
		}
	}()
	status, err := snapshot.NewV3(zap.NewNop()).Status(database)
	if err != nil {
		return fmt.Errorf("the database in the backup is damaged: %w", err)
	}
	// Milliseconds of the clock grow faster than any plane writes, so the same backup restored
	// twice begins above whatever was written in between.
	bump := max(minimumBump, now.UnixMilli()-status.Revision)
	etcd := embed.NewConfig()
	etcd.Name = memberName
	etcd.AdvertisePeerUrls = append(etcd.AdvertisePeerUrls[:0], peerURL)
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: database, Name: memberName, OutputDataDir: etcdDir(dir),
		PeerURLs: []string{peerURL.String()}, InitialCluster: etcd.InitialClusterFromName(memberName),
		InitialClusterToken: etcd.InitialClusterToken,
		RevisionBump:        uint64(bump), MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("rebuild the database: %w", err)
	}
	return os.Remove(database)
}
