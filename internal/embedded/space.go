package embedded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var (
	// ErrDiskFull is returned while the file system of the data directory has too little space
	// for writes to be safe.
	ErrDiskFull = errors.New("disk full")
	// ErrDatabaseFull is returned while the database has reached its quota.
	ErrDatabaseFull = errors.New("database full")
)

const (
	spaceInterval  = 500 * time.Millisecond
	defragInterval = time.Hour
	// A database smaller than this is not worth the pause of a defragmentation.
	defragMinimum = 128 * mebibyte
)

// tend watches over space until ctx ends: it stops writes before the disk is full, lets them go
// on once there is space again, frees what a full database can free, and defragments.
func (s *store) tend(ctx context.Context) {
	space, defrag := time.NewTicker(spaceInterval), time.NewTicker(defragInterval)
	defer space.Stop()
	defer defrag.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.broken:
			return
		case <-space.C:
			if err := s.checkSpace(ctx); err != nil && ctx.Err() == nil {
				s.log.Error("watching the space of the database", "error", err)
			}
		case <-defrag.C:
			if err := s.defragment(defragMinimum); err != nil {
				s.log.Error("defragmenting the database", "error", err)
			}
		}
	}
}

// healthy says why writes are refused, or nil.
func (s *store) healthy() error {
	select {
	case <-s.broken:
		return s.brokenBy
	default:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trouble
}

// setTrouble records and logs a change of health. Calls with the same kind of trouble are silent.
func (s *store) setTrouble(err error) {
	s.mu.Lock()
	before := s.trouble
	s.trouble = err
	s.mu.Unlock()
	switch {
	case err != nil && before == nil:
		s.log.Error("writes are refused", "reason", err)
	case err == nil && before != nil:
		s.log.Info("writes are accepted again")
	}
}

// checkSpace raises or clears etcd's NOSPACE alarm, under which puts are refused while reads,
// deletions and compactions go on. etcd itself raises it only for the quota, and a full disk
// makes it exit; so for the disk it is raised here, while there still is a reserve.
func (s *store) checkSpace(ctx context.Context) error {
	free, err := freeSpace(s.dataDir)
	if err != nil {
		return err
	}
	wanted := s.reserve
	if errors.Is(s.healthy(), ErrDiskFull) {
		wanted += s.reserve / 4 // not on and off around the limit
	}
	alarmed := s.alarmed()
	if free < wanted {
		s.setTrouble(fmt.Errorf("%w: %s has %d MiB free: writes are refused until %d MiB are",
			ErrDiskFull, s.dataDir, free/mebibyte, (s.reserve+s.reserve/4)/mebibyte))
		if alarmed {
			return nil
		}
		return s.alarm(ctx, etcdserverpb.AlarmRequest_ACTIVATE)
	}
	if !alarmed {
		s.setTrouble(nil)
		return nil
	}
	if s.etcd.Server.Backend().Size() >= s.quota*9/10 {
		return s.relieve(ctx, free)
	}
	if err := s.alarm(ctx, etcdserverpb.AlarmRequest_DEACTIVATE); err != nil {
		return err
	}
	s.setTrouble(nil)
	return nil
}

// relieve frees what a database at its quota can free: old revisions first, then the space they
// took. What stays after that is the user's to delete, and is tried again after every deletion.
func (s *store) relieve(ctx context.Context, free uint64) error {
	server := s.etcd.Server
	revision := server.KV().Rev()
	if server.KV().FirstRev() < revision {
		_, err := server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: revision, Physical: true})
		if err != nil {
			return fmt.Errorf("compact to revision %d: %w", revision, err)
		}
	}
	// What a compaction freed counts as in use until commits have followed: look each time.
	server.Backend().ForceCommit()
	inUse := server.Backend().SizeInUse()
	if inUse >= s.quota*8/10 || uint64(inUse)+s.reserve > free {
		s.setTrouble(fmt.Errorf("%w: %d MiB of %d MiB are in use: writes are refused until resources are deleted or the quota is raised",
			ErrDatabaseFull, inUse/mebibyte, s.quota/mebibyte))
		return nil
	}
	if err := s.rewrite(); err != nil {
		return err
	}
	if err := s.alarm(ctx, etcdserverpb.AlarmRequest_DEACTIVATE); err != nil {
		return err
	}
	s.setTrouble(nil)
	return nil
}

func (s *store) alarmed() bool {
	for _, a := range s.etcd.Server.Alarms() {
		if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

func (s *store) alarm(ctx context.Context, action etcdserverpb.AlarmRequest_AlarmAction) error {
	_, err := s.etcd.Server.Alarm(ctx, &etcdserverpb.AlarmRequest{
		MemberID: uint64(s.etcd.Server.MemberID()), Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	if err != nil {
		return fmt.Errorf("%s the alarm about space: %w", action, err)
	}
	return nil
}

// defragment rewrites a database of at least minimum bytes if half of it is free space and the
// file system has room for the copy.
func (s *store) defragment(minimum int64) error {
	b := s.etcd.Server.Backend()
	size, inUse := b.Size(), b.SizeInUse()
	if size < minimum || inUse > size/2 {
		return nil
	}
	free, err := freeSpace(s.dataDir)
	if err != nil {
		return err
	}
	if free < uint64(inUse)+s.reserve {
		return nil
	}
	return s.rewrite()
}

// rewrite copies what is in use of the database into a new file and puts it in place of the old
// one. etcd answers nobody meanwhile, about a second for each 100 MiB.
func (s *store) rewrite() error {
	b := s.etcd.Server.Backend()
	before, start := b.Size(), s.now()
	if err := b.Defrag(); err != nil {
		return fmt.Errorf("defragment the database: %w", err)
	}
	s.log.Info("database defragmented", "before_bytes", before, "after_bytes", b.Size(), "took", s.now().Sub(start))
	return nil
}
