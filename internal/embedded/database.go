package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// databaseWait bounds the wait for a database that somebody has open for writing.
const databaseWait = time.Second

// ErrNoDatabase is returned where there is no database to look into.
var ErrNoDatabase = errors.New("there is no database")

// Database is a file of etcd's on which no etcd runs. It is read as it is, and never changed.
type Database struct{ file string }

// databaseOf is the database of a data directory. It lacks what etcd had in its log alone: of one
// that was killed, the last tenth of a second (backend.defaultBatchInterval of etcd 3.6).
func databaseOf(dataDir string) Database {
	return Database{filepath.Join(etcdDir(dataDir), "member", "snap", "db")}
}

// Read returns what the API server has stored below any of the prefixes ("secrets/default/",
// "fairlead.dev/machines/"). The keys of the result begin with the prefix. The values are as they
// were stored: JSON of kinds that a definition has brought, protobuf of the API's own.
func (d Database) Read(ctx context.Context, prefixes ...string) (found map[string][]byte, err error) {
	if _, err := os.Stat(d.file); errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoDatabase
	}
	// A file that is cut short shows as a fault of its mapping, a damaged one as a panic of bbolt.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			found, err = nil, fmt.Errorf("read %s: it is damaged: %v", d.file, r)
		}
	}()
	db, err := bbolt.Open(d.file, 0o400, &bbolt.Options{ReadOnly: true, Timeout: databaseWait})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.file, err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		found, err = readKeys(ctx, tx, prefixes)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", d.file, err)
	}
	return found, nil
}

// readKeys goes through all revisions that etcd has kept, in their order: the last one of a key is
// its value.
func readKeys(ctx context.Context, tx *bbolt.Tx, prefixes []string) (map[string][]byte, error) {
	revisions := tx.Bucket(schema.Key.Name())
	if revisions == nil {
		return nil, errors.New("it is not a database of etcd")
	}
	found := map[string][]byte{}
	n := 0
	err := revisions.ForEach(func(revision, value []byte) error {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		var kv mvccpb.KeyValue
		if err := kv.Unmarshal(value); err != nil {
			return err
		}
		key, ours := strings.CutPrefix(string(kv.Key), storagePrefix+"/")
		switch {
		case !ours || !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(key, p) }):
		case mvcc.IsTombstone(revision):
			delete(found, key)
		default:
			found[key] = kv.Value
		}
		return nil
	})
	return found, err
}
