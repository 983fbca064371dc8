package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"fairlead.dev/internal/snapshot"
)

// lastApplied is kubectl's copy of the manifest; it repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// alsoBuiltIn lists the resources of a bundle that every cluster has and no snapshot holds.
var alsoBuiltIn = [...]schema.GroupVersionResource{
	{Version: "v1", Resource: "events"},
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
}

// Kinds are the resources of a bundle: those that every cluster has, and all that the
// definitions define, so that none can be forgotten. Private ones, Secrets and ConfigMaps, are not among them.
func Kinds(definitions ...fs.FS) ([]schema.GroupVersionResource, error) {
	kinds := slices.Clone(alsoBuiltIn[:])
	private := map[schema.GroupResource]bool{}
	for _, r := range snapshot.Resources() {
		private[r.GroupResource()] = r.Private
		if r.BuiltIn && !r.Private {
			kinds = append(kinds, r.GroupVersionResource)
		}
	}
	for _, files := range definitions {
		err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			body, err := fs.ReadFile(files, path)
			if err != nil {
				return err
			}
			for _, document := range bytes.Split(body, []byte("\n---\n")) {
				var d definition
				if err := yaml.Unmarshal(document, &d); err != nil {
					return fmt.Errorf("read the definition %s: %w", path, err)
				}
				for _, v := range d.Spec.Versions {
					r := schema.GroupVersionResource{Group: d.Spec.Group, Version: v.Name, Resource: d.Spec.Names.Plural}
					if d.Kind == "CustomResourceDefinition" && v.Storage && !private[r.GroupResource()] {
						kinds = append(kinds, r)
					}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return kinds, nil
}

// definition is what a bundle needs of a CustomResourceDefinition.
type definition struct {
	Kind string `json:"kind"`
	Spec struct {
		Group    string                  `json:"group"`
		Names    struct{ Plural string } `json:"names"`
		Versions []struct {
			Name    string `json:"name"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
	} `json:"spec"`
}

// Resources returns a part for each kind: one YAML file a kind that `fairlead translate
// -f` reads, without managed fields.
func Resources(client dynamic.Interface, kinds []schema.GroupVersionResource) []Part {
	var parts []Part
	for _, r := range kinds {
		parts = append(parts, Part{
			Name:  "resources/" + r.Resource + ".yaml",
			Fetch: func(ctx context.Context) ([]byte, error) { return dump(ctx, client, r) },
		})
	}
	return parts
}

func dump(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource) ([]byte, error) {
	var out bytes.Buffer
	options := metav1.ListOptions{Limit: 1000}
	for {
		page, err := client.Resource(r).List(ctx, options)
		if err != nil {
			return out.Bytes(), fmt.Errorf("list %s: %w", r.Resource, err)
		}
		for i := range page.Items {
			object := &page.Items[i]
			object.SetManagedFields(nil)
			if notes := object.GetAnnotations(); notes[lastApplied] != "" {
				delete(notes, lastApplied)
				object.SetAnnotations(notes)
			}
			body, err := yaml.Marshal(object.Object)
			if err != nil {
				return out.Bytes(), fmt.Errorf("write %s %s/%s: %w", r.Resource, object.GetNamespace(), object.GetName(), err)
			}
			out.WriteString("---\n")
			out.Write(body)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out.Bytes(), nil
		}
	}
}
