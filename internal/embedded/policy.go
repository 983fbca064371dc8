package embedded

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// InstallPolicy writes the admission policies of a manifest, and their bindings, over those that are there.
func InstallPolicy(ctx context.Context, cfg *rest.Config, manifest []byte) error {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("make the client for admission policies: %w", err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "fairlead", Force: &force}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the admission policies: %w", err)
		}
		var o metav1.PartialObjectMetadata
		if err := yaml.Unmarshal(document, &o); err != nil {
			return fmt.Errorf("read the admission policies: %w", err)
		}
		api := client.AdmissionregistrationV1()
		switch o.Kind {
		case "MutatingAdmissionPolicy":
			_, err = api.MutatingAdmissionPolicies().Patch(ctx, o.Name, types.ApplyYAMLPatchType, document, options)
		case "MutatingAdmissionPolicyBinding":
			_, err = api.MutatingAdmissionPolicyBindings().Patch(ctx, o.Name, types.ApplyYAMLPatchType, document, options)
		default:
			err = fmt.Errorf("no policy of %s", admissionv1.GroupName)
		}
		if err != nil {
			return fmt.Errorf("write %s %s: %w", o.Kind, o.Name, err)
		}
	}
}
