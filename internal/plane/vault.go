package plane

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"fairlead.dev/internal/derive"
	"fairlead.dev/internal/history"
	"fairlead.dev/internal/record"
)

// vaultHeader begins a history, wherever it is.
const vaultHeader = "fairlead revisions 1\n"

// Bounds of a history in a file.
const (
	fileVaultBytes = 48 << 20
	fileVaultEvery = 200 * time.Millisecond
)

// fileVault keeps a history in a file of this machine.
type fileVault struct {
	path   string
	header string                      // empty is vaultHeader
	most   int                         // bytes; 0 is fileVaultBytes
	may    func(context.Context) error // says why the disk should be spared; nil: never
	file   *record.File
}

func (v *fileVault) bounds() (int, time.Duration) {
	return cmp.Or(v.most, fileVaultBytes), fileVaultEvery
}

func (v *fileVault) load(context.Context) ([][]byte, error) {
	var records [][]byte
	file, err := record.Open(v.path, cmp.Or(v.header, vaultHeader), func(b []byte) error {
		records = append(records, b)
		return nil
	})
	v.file = file
	return records, err
}

func (v *fileVault) append(ctx context.Context, records [][]byte) error {
	if v.may != nil {
		if err := v.may(ctx); err != nil {
			return err
		}
	}
	if v.file.Broken() {
		return fmt.Errorf("%s has to be made anew", v.path)
	}
	return v.file.Append(records...)
}

func (v *fileVault) replace(ctx context.Context, _ uint64, records [][]byte) error {
	if v.may != nil {
		if err := v.may(ctx); err != nil {
			return err
		}
	}
	return v.file.Replace(records...)
}

// Bounds of a history in Secrets. A Secret may have 1 MiB; one that is appended to is
// written whole each time.
const (
	secretVaultBytes = 8 << 20
	secretVaultEvery = 2 * time.Second
	secretVaultPart  = 256 << 10
)

const (
	// historySecretType is the type of the Secrets that hold revisions of routing.
	historySecretType = corev1.SecretType("fairlead.dev/revisions")
	historyPrefix     = "revisions-"
	historyLabel      = "fairlead.dev/revisions" // the series
	historyField      = "records"
)

// secretVault keeps a history in Secrets of Namespace: the bytes of a file, cut into
// parts. Each time that all is replaced, and each leadership, begins a series of its own;
// its first part is written last, so a series that has one is whole. A plane writes to
// its own series only, and only over what it wrote itself: one that does not know yet that
// it leads no more disturbs nobody. Where somebody else has touched that, it begins another
// series, unless there is one of a later epoch. What one that was cut short, or deposed,
// leaves is older than a whole series of the leader's, and goes by tidy.
type secretVault struct {
	client client.Client
	owner  owner
	of     secretsOf
	part   int // how large one may be, bytes
	most   int

	series series
	whole  bool             // the series is, and takes the place of all before it
	parts  []*corev1.Secret // as written, in order
}

// secretsOf says what is in the Secrets of a vault.
type secretsOf struct {
	what   string // for people
	header string
	kind   corev1.SecretType
	prefix string // of names
	label  string // for the series
}

var revisionSecrets = secretsOf{what: "revisions", header: vaultHeader, kind: historySecretType, prefix: historyPrefix, label: historyLabel}

// series orders what leaderships wrote: by epoch, and in one by number.
type series struct{ epoch, number uint64 }

func (s series) String() string { return fmt.Sprintf("%d-%d", s.epoch, s.number) }

func (s series) compare(o series) int {
	return cmp.Or(cmp.Compare(s.epoch, o.epoch), cmp.Compare(s.number, o.number))
}

func parseSeries(text string) (series, error) {
	epoch, number, _ := strings.Cut(text, "-")
	e, err := strconv.ParseUint(epoch, 10, 64)
	if err != nil {
		return series{}, err
	}
	n, err := strconv.ParseUint(number, 10, 64)
	return series{e, n}, err
}

// owner gives the owner of Secrets; nil: none.
type owner interface {
	ownerReference() *metav1.OwnerReference
}

// newVault is the vault of a plane: its file, or Secrets.
func newVault(c Config, api client.Client, o owner) vault {
	if c.HistoryFile != "" {
		return &fileVault{path: c.HistoryFile, may: c.MayWrite}
	}
	return newSecretVault(api, o)
}

func newSecretVault(c client.Client, owner owner) *secretVault {
	return &secretVault{client: c, owner: owner, of: revisionSecrets, part: secretVaultPart, most: secretVaultBytes}
}

func (v *secretVault) bounds() (int, time.Duration) { return v.most, secretVaultEvery }

// all are the Secrets that there are, by series, each in the order of its parts.
func (v *secretVault) all(ctx context.Context) (map[series][]corev1.Secret, error) {
	var list corev1.SecretList
	if err := v.client.List(ctx, &list, client.InNamespace(Namespace), client.HasLabels{v.of.label}); err != nil {
		return nil, fmt.Errorf("list the Secrets of %s in %s: %w", v.of.what, Namespace, err)
	}
	by := map[series][]corev1.Secret{}
	for _, s := range list.Items {
		of, err := parseSeries(s.Labels[v.of.label])
		if err != nil || s.Type != v.of.kind {
			continue // not ours
		}
		by[of] = append(by[of], s)
	}
	for _, parts := range by {
		slices.SortFunc(parts, func(a, b corev1.Secret) int { return cmp.Compare(partNumber(a.Name), partNumber(b.Name)) })
	}
	return by, nil
}

func partNumber(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

func (v *secretVault) load(ctx context.Context) ([][]byte, error) {
	by, err := v.all(ctx)
	if err != nil {
		return nil, err
	}
	var newest *series
	for s, parts := range by {
		if partNumber(parts[0].Name) == 0 && (newest == nil || s.compare(*newest) > 0) {
			newest = &s
		}
	}
	if newest == nil {
		return nil, nil
	}
	var stream bytes.Buffer
	for i, p := range by[*newest] {
		if partNumber(p.Name) != i {
			break
		}
		stream.Write(p.Data[historyField])
	}
	var records [][]byte
	err = record.Read(&stream, v.of.header, func(b []byte) error {
		records = append(records, b)
		return nil
	})
	if err != nil {
		err = fmt.Errorf("read Secrets %s/%s%s-*: %w", Namespace, v.of.prefix, newest, err)
	}
	return records, err
}

// replace begins another series and removes those before it.
func (v *secretVault) replace(ctx context.Context, epoch uint64, records [][]byte) error {
	by, err := v.all(ctx)
	if err != nil {
		return err
	}
	next := series{epoch: epoch, number: 1}
	for s := range by {
		if s.epoch > epoch {
			return fmt.Errorf("%w: Secrets of epoch %d are there", errFenced, s.epoch)
		}
		if s.epoch == epoch {
			next.number = max(next.number, s.number+1)
		}
	}
	v.series, v.parts, v.whole = next, nil, false
	stream := []byte(v.of.header)
	for _, r := range records {
		stream = append(stream, record.Frame(r)...)
	}
	for part := range slices.Chunk(stream, v.part) {
		v.parts = append(v.parts, v.secret(len(v.parts), part))
	}
	for _, s := range slices.Backward(v.parts) {
		if err := v.create(ctx, s); err != nil {
			return err
		}
	}
	v.whole = true
	return v.removeBefore(ctx, by)
}

// tidy removes what leaderships before left after this one had looked: each of them may
// have been at writing when it was deposed, or ended. It never removes anything of a
// later series, nor while its own is not whole.
func (v *secretVault) tidy(ctx context.Context) error {
	if !v.whole {
		return nil
	}
	by, err := v.all(ctx)
	if err != nil {
		return err
	}
	return v.removeBefore(ctx, by)
}

// removeBefore removes the series before this vault's own.
func (v *secretVault) removeBefore(ctx context.Context, by map[series][]corev1.Secret) error {
	for s, parts := range by {
		if s.compare(v.series) >= 0 {
			continue
		}
		for i := range parts {
			if err := v.client.Delete(ctx, &parts[i]); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Errorf("remove the %s of series %s: %w", v.of.what, s, err)
			}
		}
	}
	return nil
}

func (v *secretVault) secret(number int, data []byte) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: fmt.Sprintf("%s%s-%d", v.of.prefix, v.series, number),
			Labels: map[string]string{v.of.label: v.series.String()},
		},
		Type: v.of.kind,
		Data: map[string][]byte{historyField: data},
	}
	s.OwnerReferences, _ = derive.Owned(nil, v.owner.ownerReference())
	return s
}

func (v *secretVault) create(ctx context.Context, s *corev1.Secret) error {
	if err := v.client.Create(ctx, s); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return nil
}

// append grows the last part, and then adds others: what is there of it at any time is a
// beginning.
func (v *secretVault) append(ctx context.Context, records [][]byte) error {
	var more []byte
	for _, r := range records {
		more = append(more, record.Frame(r)...)
	}
	last := v.parts[len(v.parts)-1]
	if room := v.part - len(last.Data[historyField]); room > 0 {
		grown := last.DeepCopy()
		n := min(room, len(more))
		grown.Data[historyField], more = append(grown.Data[historyField], more[:n]...), more[n:]
		if err := v.client.Update(ctx, grown); err != nil {
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				// Whoever labels, annotates or deletes it leads nobody: replace finds out who does.
				return fmt.Errorf("%w: Secret %s/%s: %w", history.ErrMoved, last.Namespace, last.Name, err)
			}
			return fmt.Errorf("write Secret %s/%s: %w", last.Namespace, last.Name, err)
		}
		v.parts[len(v.parts)-1] = grown
	}
	for part := range slices.Chunk(more, v.part) {
		s := v.secret(len(v.parts), part)
		if err := v.create(ctx, s); err != nil {
			return err
		}
		v.parts = append(v.parts, s)
	}
	return nil
}

// vault is where a history outlives its plane: records, of which the first is a whole
// state and the others are steps from it on. What is there after a crash is a beginning
// of what was written last, or all of what was there before.
type vault interface {
	// load returns the records that can be read. With record.ErrDamaged there were more.
	load(ctx context.Context) ([][]byte, error)
	// append puts records behind the others. With history.ErrMoved others have touched them.
	append(ctx context.Context, records [][]byte) error
	// replace puts records into the place of all; epoch is that of the plane. With
	// errFenced there are some of a later one, and they stay.
	replace(ctx context.Context, epoch uint64, records [][]byte) error
	// bounds are how many bytes may be kept, and how often something may be written.
	bounds() (most int, every time.Duration)
}

// tidier is a vault in which leaderships that ended while they wrote leave something that
// nobody reads.
type tidier interface {
	// tidy removes it. What a leadership writes that may be alive stays.
	tidy(ctx context.Context) error
}
