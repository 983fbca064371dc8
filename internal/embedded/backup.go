package embedded

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/snapshot"
	"go.uber.org/zap"
	kubeversion "k8s.io/component-base/version"
)

const (
	// backupFormat is the first word of a backup's manifest; a restore refuses another.
	backupFormat = "fairlead-backup/1"
	manifestName = "manifest.json"
	databaseName = "etcd.db"
	// snapshotDial bounds the wait for a running etcd to answer.
	snapshotDial = 10 * time.Second
)

// Manifest is what a backup says about itself. It is the first member of the tar file.
type Manifest struct {
	Format     string         `json:"format"`
	Created    time.Time      `json:"created"`
	Host       string         `json:"host"`
	Fairlead   string         `json:"fairlead"`
	Kubernetes string         `json:"kubernetes"`
	Etcd       string         `json:"etcd"`
	Files      []ManifestFile `json:"files"`
}

// ManifestFile is one of the members that follow the manifest, in this order.
type ManifestFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Backup writes the database and the certificates of dataDir to file, one tar readable by its
// owner only. It asks the etcd that runs on dataDir, if one does, and starts one for the moment if
// not; either way the backup holds every write acknowledged before it began. An existing file is
// replaced once the new one is whole. version is this program's, for the manifest.
func Backup(ctx context.Context, dataDir, file, version string) error {
	takeLog()
	if err := backup(ctx, dataDir, file, version, time.Now); err != nil {
		return fmt.Errorf("back up %s to %s: %w", dataDir, file, err)
	}
	return nil
}

func backup(ctx context.Context, dataDir, file, version string, now func() time.Time) error {
	dataDir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dataDir, "pki")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s holds no plane's data: give its directory with --data-dir", dataDir)
	} else if err != nil {
		return fmt.Errorf("read the data directory: %w", err)
	}
	if _, err := os.Stat(etcdDir(dataDir)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("it holds no database: if the plane runs with --etcd-servers, back that cluster up with etcdctl snapshot save, and copy %s", filepath.Join(dataDir, "pki"))
	}
	staging, err := os.MkdirTemp(filepath.Dir(file), tempPrefix+"backup-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	database := filepath.Join(staging, databaseName)
	if err := snapshotDatabase(ctx, dataDir, database, now); err != nil {
		return err
	}
	sources := map[string]string{databaseName: database}
	err = filepath.WalkDir(filepath.Join(dataDir, "pki"), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasPrefix(d.Name(), tempPrefix) {
			return err
		}
		rel, err := filepath.Rel(dataDir, p)
		sources[filepath.ToSlash(rel)] = p
		return err
	})
	if err != nil {
		return err
	}
	return writeBackup(file, version, sources, now())
}

// snapshotDatabase writes a consistent copy of dataDir's database to file.
func snapshotDatabase(ctx context.Context, dataDir, file string, now func() time.Time) error {
	lock, err := lockDir(dataDir)
	switch {
	case err == nil:
		// Nobody runs. etcd's files alone may lack writes that are in its log only, so etcd
		// reads them, and the snapshot is taken from it.
		defer lock.Close()
		s, err := startStore(ctx, storeConfig{dataDir: dataDir, quota: defaultEtcdQuota, log: slog.New(slog.DiscardHandler), now: now})
		if err != nil {
			return err
		}
		return errors.Join(saveSnapshot(ctx, dataDir, file), s.stop(ctx))
	case errors.Is(err, ErrLocked):
		if err := saveSnapshot(ctx, dataDir, file); err != nil {
			return fmt.Errorf("%w (process %s holds the data directory: is it starting or stopping?)", err, holder(filepath.Join(dataDir, "lock")))
		}
		return nil
	default:
		return err
	}
}

func saveSnapshot(ctx context.Context, dataDir, file string) error {
	cfg := clientv3.Config{Endpoints: []string{"unix://" + socketPath(dataDir)}, DialTimeout: snapshotDial, Logger: zap.NewNop()}
	client, err := clientv3.New(cfg)
	if err != nil {
		return fmt.Errorf("connect to etcd: %w", err)
	}
	defer client.Close()
	// A snapshot has no deadline of its own; a question before it tells whether etcd is there.
	probe, cancel := context.WithTimeout(ctx, snapshotDial)
	defer cancel()
	if _, err := client.Get(probe, storagePrefix, clientv3.WithCountOnly()); err != nil {
		return fmt.Errorf("etcd does not answer: %w", err)
	}
	if _, err := snapshot.SaveWithVersion(ctx, zap.NewNop(), cfg, file); err != nil {
		return fmt.Errorf("save a snapshot: %w", err)
	}
	return nil
}

// writeBackup writes the tar of sources, which maps names in the backup to files.
func writeBackup(file, version string, sources map[string]string, created time.Time) error {
	m := Manifest{Format: backupFormat, Created: created.UTC(), Kubernetes: kubeversion.Get().GitVersion, Fairlead: version, Etcd: moduleVersion("go.etcd.io/etcd/server/v3")}
	m.Host, _ = os.Hostname() // for people to read; a machine without a name has none to tell
	out, err := os.CreateTemp(filepath.Dir(file), tempPrefix+filepath.Base(file)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()

	// Small files are read once, so that a renewal between hashing and writing cannot split them.
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.Sort(names)
	contents := map[string][]byte{}
	for _, name := range names {
		entry := ManifestFile{Name: name}
		if name == databaseName {
			if entry.Size, entry.SHA256, err = hashFile(sources[name]); err != nil {
				return err
			}
		} else {
			b, err := os.ReadFile(sources[name])
			if err != nil {
				return err
			}
			sum := sha256.Sum256(b)
			contents[name], entry.Size, entry.SHA256 = b, int64(len(b)), hex.EncodeToString(sum[:])
		}
		m.Files = append(m.Files, entry)
	}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	contents[manifestName] = manifest

	w := tar.NewWriter(out)
	add := func(name string, size int64, from io.Reader) error {
		err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: size, ModTime: created, Format: tar.FormatPAX})
		if err == nil {
			_, err = io.Copy(w, from)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		return nil
	}
	if err := add(manifestName, int64(len(manifest)), strings.NewReader(string(manifest))); err != nil {
		return err
	}
	for _, entry := range m.Files {
		if b, ok := contents[entry.Name]; ok {
			if err := add(entry.Name, entry.Size, strings.NewReader(string(b))); err != nil {
				return err
			}
			continue
		}
		f, err := os.Open(sources[entry.Name])
		if err != nil {
			return err
		}
		err = add(entry.Name, entry.Size, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return commitFile(out, file)
}

func hashFile(name string) (int64, string, error) {
	f, err := os.Open(name)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// moduleVersion is the version of a module that this binary was built with, "" if it is not told.
func moduleVersion(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, d := range info.Deps {
		if d.Path == module {
			return d.Version
		}
	}
	return ""
}

// readManifest reads the first member of a backup and refuses names that could lead elsewhere.
func readManifest(r *tar.Reader) (Manifest, error) {
	var m Manifest
	h, err := r.Next()
	if err != nil || h.Name != manifestName {
		return m, errors.New("this is not a backup: it does not begin with " + manifestName)
	}
	b, err := io.ReadAll(io.LimitReader(r, mebibyte))
	if err != nil {
		return m, fmt.Errorf("its manifest is cut short: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("its manifest cannot be read: %w", err)
	}
	if m.Format != backupFormat {
		return m, fmt.Errorf("its format is %q, this fairlead reads %q", m.Format, backupFormat)
	}
	database := false
	for _, f := range m.Files {
		database = database || f.Name == databaseName
		if f.Name != databaseName && (path.Clean(f.Name) != f.Name || !strings.HasPrefix(f.Name, "pki/")) {
			return m, fmt.Errorf("its manifest names %q, which does not belong in a backup", f.Name)
		}
	}
	if !database {
		return m, errors.New("its manifest names no database")
	}
	return m, nil
}
