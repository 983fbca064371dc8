package discovery

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/snapshot"
	"fairlead.dev/internal/source/cloud"
	"fairlead.dev/internal/source/kube"
	"fairlead.dev/internal/source/openstack"
)

// Open makes the source of an Upstream. Its error is a *cloud.Error.
func Open(o Origin, sink cloud.Sink) (Source, error) {
	if o.Secret == nil {
		return nil, &cloud.Error{
			Reason: v1alpha1.ReasonSecretMissing,
			Err:    fmt.Errorf("secret %s/%s does not exist", v1alpha1.SystemNamespace, secretOf(o.Upstream)),
		}
	}
	switch spec := o.Upstream.Spec; {
	case spec.Kubernetes != nil:
		return o.openCluster(spec, sink)
	case spec.OpenStack != nil:
		return o.openCloud(spec, sink)
	}
	return nil, invalid("spec: give either kubernetes or openstack")
}

func (o Origin) openCluster(spec v1alpha1.UpstreamSpec, sink cloud.Sink) (Source, error) {
	kubeconfig, err := o.credentials(snapshot.KubeconfigKey)
	if err != nil {
		return nil, err
	}
	c := kube.Config{
		Name: o.Upstream.Name, Kubeconfig: kubeconfig, Context: spec.Kubernetes.Context, Allow: o.Config.Allow, Namespaces: spec.Namespaces,
		RequestsPerSecond: int(spec.RequestsPerSecond), AnswerBytes: answerBytes(spec), OwnUID: o.OwnUID, Sink: sink, Log: o.Config.Log, Now: o.Config.Now,
		Counters: o.Counters,
	}
	if spec.Services != nil {
		if c.Selector, err = metav1.LabelSelectorAsSelector(spec.Services); err != nil {
			return nil, invalid("spec.services: %w", err)
		}
	}
	s, err := kube.New(c)
	if err != nil { // not a typed nil
		return nil, err
	}
	return s, nil
}

func (o Origin) openCloud(spec v1alpha1.UpstreamSpec, sink cloud.Sink) (Source, error) {
	clouds, err := o.credentials(snapshot.CloudsKey)
	if err != nil {
		return nil, err
	}
	credentials, err := openstack.ParseClouds(clouds, spec.OpenStack.Cloud)
	if err != nil {
		return nil, &cloud.Error{Reason: v1alpha1.ReasonCredentials, Err: err}
	}
	selector := labels.Everything()
	if spec.Services != nil {
		if selector, err = metav1.LabelSelectorAsSelector(spec.Services); err != nil {
			return nil, invalid("spec.services: %w", err)
		}
	}
	sink = selecting{sink, &spec, selector}
	c := openstack.Config{
		Name: o.Upstream.Name, Credentials: credentials, Authorities: o.Secret.Data[snapshot.AuthorityKey], API: spec.OpenStack.API,
		Projects: spec.OpenStack.Projects, Notifications: string(o.Secret.Data[snapshot.NotificationsKey]), Topic: spec.OpenStack.NotificationTopic,
		RequestsPerSecond: int(spec.RequestsPerSecond), AnswerBytes: answerBytes(spec), Allow: o.Config.Allow, Sink: sink, Log: o.Config.Log, Now: o.Config.Now,
		Counters: o.Counters,
	}
	if d := spec.OpenStack.PollInterval; d != nil {
		c.PollInterval = d.Duration
	}
	if d := spec.OpenStack.SweepInterval; d != nil {
		c.SweepInterval = d.Duration
	}
	s, err := openstack.New(c)
	if err != nil { // not a typed nil
		return nil, err
	}
	return s, nil
}

func answerBytes(spec v1alpha1.UpstreamSpec) int64 { return int64(spec.Limits.AnswerMiB) << 20 }

func invalid(format string, args ...any) error {
	return &cloud.Error{Reason: v1alpha1.ReasonInvalid, Err: fmt.Errorf(format, args...)}
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
