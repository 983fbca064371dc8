package discovery

import (
	"fmt"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
)

// Open makes the source of an Upstream.
func Open(o Origin, sink cloud.Sink) (Source, error) {
	if o.Secret == nil {
		return nil, &cloud.Error{
			Reason: v1alpha1.ReasonSecretMissing,
			Err:    fmt.Errorf("secret %s/%s does not exist", v1alpha1.SystemNamespace, secretOf(o.Upstream)),
		}
	}
	return nil, &cloud.Error{Reason: v1alpha1.ReasonInvalid, Err: fmt.Errorf("not yet")}
}

// credentials are the value of a key of the Secret.
func (o Origin) credentials(key string) ([]byte, error) {
	if value := o.Secret.Data[key]; len(value) > 0 {
		return value, nil
	}
	return nil, &cloud.Error{
		Reason: v1alpha1.ReasonSecretMissing,
		Err:    fmt.Errorf("secret %s/%s has no key %q", o.Secret.Namespace, o.Secret.Name, key),
	}
}

var _ = snapshot.KubeconfigKey
