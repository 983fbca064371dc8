package embedded

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// discardUnborn removes the etcd directory that a first start left behind when it was killed
// after it had made its log and before it had written its own membership there. etcd 3.6 takes
// such a log for that of a cluster without members and waits for their leader for ever.
//
// Nothing is lost: what etcd acknowledges is committed, and the membership is committed first.
// A log that cannot be read is left to etcd, which says what is wrong with it.
func discardUnborn(dataDir string, log *slog.Logger) error {
	dir := etcdDir(dataDir)
	logs := filepath.Join(dir, "member", "wal")
	if !wal.Exist(logs) {
		return nil
	}
	snapshots, err := filepath.Glob(filepath.Join(dir, "member", "snap", "*.snap"))
	if err != nil || len(snapshots) > 0 {
		return err
	}
	w, err := wal.OpenForRead(zap.NewNop(), logs, walpb.Snapshot{})
	if err != nil {
		return nil
	}
	_, state, _, err := w.ReadAll()
	_ = w.Close() // it has no directory open, and calls that an error
	if err != nil || state.Commit > 0 {
		return nil
	}
	log.Info("the first start of etcd was interrupted; starting again", "dir", dir)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the beginning of a database: %w", err)
	}
	return nil
}
