package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubeversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

const (
	// fieldManager owns the fields that InstallCRDs sets.
	fieldManager = "fairlead"
	// crdConcurrency bounds how many definitions are installed at once.
	crdConcurrency   = 8
	establishedCheck = 100 * time.Millisecond
	// establishedPatience is how long a definition may be late, and nothing else become
	// established, before that is said, and it is touched; it doubles.
	establishedPatience = 3 * time.Second
	// touchedKey is on a definition only while it is late.
	touchedKey = "fairlead.dev/touched"
	channelKey = "gateway.networking.k8s.io/channel"
	// safeUpgrades is the policy of the standard channel that refuses the experimental one's
	// definitions in place of its own.
	safeUpgrades = "safe-upgrades.gateway.networking.k8s.io"
)

// bundleKeys are the annotations in which a set of definitions carries its version.
var bundleKeys = []string{"gateway.networking.k8s.io/bundle-version", "fairlead.dev/bundle-version"}

// crdResources are the kinds that InstallCRDs takes, in the order in which it applies them.
var crdResources = []struct {
	kind     schema.GroupKind
	resource schema.GroupVersionResource
}{
	{
		schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
		schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
	},
	{
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicy"},
		schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
	},
	{
		schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "ValidatingAdmissionPolicyBinding"},
		schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	},
}

// InstallCRDs applies the CustomResourceDefinitions, and the admission policies that belong to
// them, of every *.yaml file in fsys, and returns once all definitions are established. It may be
// called again with the same or with newer definitions.
//
// What is there already and newer stays, and a warning says so: a definition whose storage version
// is newer or that has stored versions that ours does not serve, one of a newer bundle, and one of
// Gateway API's other channel: the experimental one has fields that the standard one would remove,
// and who installed the standard one did not ask for fields that may change.
func InstallCRDs(ctx context.Context, cfg *rest.Config, log *slog.Logger, fsys ...fs.FS) error {
	return (&installer{log: log}).install(ctx, cfg, fsys)
}

// InstallOwnCRDs is InstallCRDs for an API that nobody else uses: there the experimental channel
// replaces the standard one, which an earlier version installed.
func InstallOwnCRDs(ctx context.Context, cfg *rest.Config, log *slog.Logger, fsys ...fs.FS) error {
	return (&installer{log: log, own: true}).install(ctx, cfg, fsys)
}

// installer installs definitions; own says that the API is nobody else's.
type installer struct {
	log *slog.Logger
	own bool

	mu    sync.Mutex
	moved time.Time // when a definition was last seen to have come a step further
}

func (i *installer) moves() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.moved = time.Now()
}

// still is for how long no definition has come a step further.
func (i *installer) still() time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return time.Since(i.moved)
}

func (i *installer) install(ctx context.Context, cfg *rest.Config, fsys []fs.FS) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("install definitions: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, f := range fsys {
		o, err := readManifests(f)
		if err != nil {
			return fmt.Errorf("install definitions: %w", err)
		}
		objects = append(objects, o...)
	}
	if i.own {
		if err := unguard(ctx, client, objects); err != nil {
			return fmt.Errorf("install definitions: %w", err)
		}
	}
	// The policies guard changes of definitions, so they come when all definitions are in place.
	for _, r := range crdResources {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(crdConcurrency)
		for _, o := range objects {
			if o.GroupVersionKind().GroupKind() != r.kind {
				continue
			}
			g.Go(func() error {
				if err := i.object(ctx, client.Resource(r.resource), o); err != nil {
					return fmt.Errorf("install %s %s: %w", o.GetKind(), o.GetName(), err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// readManifests returns the objects in all *.yaml files of fsys, in the order of their names.
func readManifests(fsys fs.FS) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(b), 4096)
		for {
			o := &unstructured.Unstructured{}
			switch err := dec.Decode(o); {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("read %s: %w", name, err)
			}
			if len(o.Object) == 0 {
				continue // between two separators
			}
			known := slices.ContainsFunc(crdResources, func(r struct {
				kind     schema.GroupKind
				resource schema.GroupVersionResource
			},
			) bool {
				return r.kind == o.GroupVersionKind().GroupKind()
			})
			if !known {
				return fmt.Errorf("read %s: %s %s is neither a definition nor its admission policy", name, o.GetKind(), o.GetName())
			}
			objects = append(objects, o)
		}
	})
	return objects, err
}

func (i *installer) object(ctx context.Context, client dynamic.ResourceInterface, ours *unstructured.Unstructured) error {
	there, err := client.Get(ctx, ours.GetName(), metav1.GetOptions{})
	switch {
	case err == nil:
		why, err := i.newer(there, ours)
		if err != nil {
			return err
		}
		if why != "" {
			i.log.Warn("a custom resource definition is not replaced; the installed one stays in use", "kind", ours.GetKind(), "name", ours.GetName(), "why", why)
			return nil
		}
	case !apierrors.IsNotFound(err):
		return err
	}
	applied, err := i.apply(ctx, client, ours)
	if err != nil {
		return err
	}
	if there == nil || there.GetGeneration() != applied.GetGeneration() {
		i.log.Info("definition installed", "kind", ours.GetKind(), "name", ours.GetName())
	}
	i.moves()
	if ours.GetKind() != "CustomResourceDefinition" {
		return nil
	}
	return i.established(ctx, client, ours, applied)
}

// unguard takes the policy away that lets no experimental definition replace a standard one,
// if that is to be done. It comes back with the set that it belongs to.
func unguard(ctx context.Context, client dynamic.Interface, objects []*unstructured.Unstructured) error {
	for _, o := range objects {
		if o.GetKind() != crdResources[0].kind.Kind || o.GetAnnotations()[channelKey] != "experimental" {
			continue
		}
		there, err := client.Resource(crdResources[0].resource).Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil || there.GetAnnotations()[channelKey] != "standard" {
			continue
		}
		for _, r := range crdResources[1:] {
			if err := client.Resource(r.resource).Delete(ctx, safeUpgrades, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	}
	return nil
}

const (
	// policyLag bounds how long a policy that is gone may go on to refuse.
	policyLag = time.Minute
	// busyTime bounds how long a machine may be too busy for an API that has just started.
	busyTime = 5 * time.Minute
)

// apply applies an object. Admission learns a moment later that a policy is gone; and an API
// that has just started on a busy machine may be late, which is no reason to end it.
func (i *installer) apply(ctx context.Context, client dynamic.ResourceInterface, ours *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	lag, cancel := context.WithTimeout(ctx, policyLag)
	defer cancel()
	busy, cancelBusy := context.WithTimeout(ctx, busyTime)
	defer cancelBusy()
	for {
		applied, err := client.Apply(ctx, ours.GetName(), ours, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		var until context.Context
		switch {
		case apierrors.IsTimeout(err), apierrors.IsServerTimeout(err), apierrors.IsTooManyRequests(err):
			until = busy
			i.log.Warn("the API does not answer in time; trying again", "kind", ours.GetKind(), "name", ours.GetName(), "error", err)
		case err != nil && i.own && strings.Contains(err.Error(), safeUpgrades):
			until = lag
		default:
			return applied, err
		}
		select {
		case <-until.Done():
			return nil, err
		case <-time.After(establishedCheck):
		}
	}
}

// newer says why what is there stays rather than ours, or "".
func (i *installer) newer(there, ours *unstructured.Unstructured) (string, error) {
	for _, key := range bundleKeys {
		a, b := there.GetAnnotations()[key], ours.GetAnnotations()[key]
		if a == "" || b == "" {
			continue
		}
		va, err := version.ParseGeneric(a)
		if err != nil {
			return fmt.Sprintf("its version %q of %s cannot be compared with ours, %s", a, key, b), nil
		}
		vb, err := version.ParseGeneric(b)
		if err != nil {
			return "", fmt.Errorf("read our version %q of %s: %w", b, key, err)
		}
		if vb.LessThan(va) {
			return fmt.Sprintf("it is of bundle %s, ours of %s", a, b), nil
		}
	}
	switch a, b := there.GetAnnotations()[channelKey], ours.GetAnnotations()[channelKey]; {
	case a == "experimental" && b == "standard":
		return "it is of the experimental channel, whose fields ours would remove", nil
	case a == "standard" && b == "experimental" && !i.own:
		return "it is of the standard channel: to have the experimental one, delete the policy " + safeUpgrades + " and apply its definitions", nil
	}
	if ours.GetKind() != "CustomResourceDefinition" {
		return "", nil
	}
	var a, b apiextensionsv1.CustomResourceDefinition
	if err := errors.Join(runtime.DefaultUnstructuredConverter.FromUnstructured(there.Object, &a),
		runtime.DefaultUnstructuredConverter.FromUnstructured(ours.Object, &b)); err != nil {
		return "", err
	}
	sa, sb := storageVersion(a), storageVersion(b)
	if kubeversion.CompareKubeAwareVersionStrings(sa, sb) > 0 {
		return fmt.Sprintf("it stores version %s, ours %s", sa, sb), nil
	}
	for _, stored := range a.Status.StoredVersions {
		if !slices.ContainsFunc(b.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == stored }) {
			return fmt.Sprintf("objects are stored in version %s, which ours does not have", stored), nil
		}
	}
	return "", nil
}

func storageVersion(crd apiextensionsv1.CustomResourceDefinition) string {
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return v.Name
		}
	}
	return ""
}

// established returns once the API serves the definition, or why it never will.
//
// apiextensions v1.36 establishes a definition when it changes, or at a resync every five
// minutes. Where a server ended between the acceptance of the names and that, nothing changes in
// the next one; so a definition that is late while all others stand still is changed. While
// others come further, the API is at work: a change would cost it what it lacks.
func (i *installer) established(ctx context.Context, client dynamic.ResourceInterface, ours, applied *unstructured.Unstructured) error {
	tick := time.NewTicker(establishedCheck)
	defer tick.Stop()
	wait := establishedPatience
	late := time.NewTimer(wait)
	defer late.Stop()
	touches, before := 0, -1
	for o := applied; ; {
		missing, err := lacks(o)
		if err != nil {
			return err
		}
		if len(missing) != before {
			before = len(missing)
			i.moves()
		}
		if len(missing) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it is not %s yet: %w", strings.Join(missing, " and "), ctx.Err())
		case <-late.C:
			if still := i.still(); still < wait {
				late.Reset(wait - still)
				break
			}
			i.log.Info("waiting for the API to serve a definition", "name", ours.GetName(), "not_yet", strings.Join(missing, " and "))
			// What waits for its names is under way: a change would only be in the way of that.
			if slices.Equal(missing, []string{string(apiextensionsv1.Established)}) {
				touches++
				if _, err := i.apply(ctx, client, touched(ours, touches)); err != nil {
					return err
				}
			}
			wait *= 2
			late.Reset(wait)
		case <-tick.C:
		}
		if o, err = client.Get(ctx, ours.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
	}
	if touches == 0 {
		return nil
	}
	_, err := i.apply(ctx, client, ours) // takes the annotation away
	return err
}

// lacks names the conditions that a definition does not have yet.
func lacks(o *unstructured.Unstructured) (missing []string, err error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
		return nil, err
	}
	for _, wanted := range []apiextensionsv1.CustomResourceDefinitionConditionType{apiextensionsv1.NamesAccepted, apiextensionsv1.Established} {
		i := slices.IndexFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == wanted })
		switch {
		case i >= 0 && crd.Status.Conditions[i].Status == apiextensionsv1.ConditionTrue:
		case i >= 0 && wanted == apiextensionsv1.NamesAccepted && crd.Status.Conditions[i].Status == apiextensionsv1.ConditionFalse:
			return nil, fmt.Errorf("its names are taken: %s", crd.Status.Conditions[i].Message)
		default:
			missing = append(missing, string(wanted))
		}
	}
	return missing, nil
}

// touched is a definition with a change that means nothing, another one each time.
func touched(ours *unstructured.Unstructured, times int) *unstructured.Unstructured {
	o := ours.DeepCopy()
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[touchedKey] = strconv.Itoa(times)
	o.SetAnnotations(annotations)
	return o
}
