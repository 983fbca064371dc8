package clouds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/projects"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"fairlead.dev/lab/openstack"
	"fairlead.dev/lab/rig"
)

// cloud is an OpenStack cloud with a project that has load balancers, each with a pool of members.
type cloud struct {
	*openstack.Cloud
	client    *gophercloud.ServiceClient
	project   string
	balancers []string // IDs
}

// balancers is how many the cloud has: one that goes is less than half.
const balancers = 3

func newCloud(ctx context.Context, c *openstack.Cloud, members []string) (*cloud, error) {
	provider, err := c.Provider(ctx, "admin", openstack.Password, "admin")
	if err != nil {
		return nil, err
	}
	identity, err := clients.NewIdentityV3(provider, gophercloud.EndpointOpts{})
	if err != nil {
		return nil, err
	}
	project, err := projects.Create(ctx, identity, projects.CreateOpts{Name: namespace, DomainID: "default"}).Extract()
	if err != nil {
		return nil, err
	}
	o := &cloud{Cloud: c, project: project.ID}
	if o.client, err = clients.NewLoadBalancerV2(provider, gophercloud.EndpointOpts{Region: "RegionOne"}); err != nil {
		return nil, err
	}
	var all []pools.CreateMemberOpts
	for _, m := range members {
		all = append(all, pools.CreateMemberOpts{Address: m, ProtocolPort: port})
	}
	for i := range balancers {
		if err := o.create(ctx, fmt.Sprintf("web-%d", i), all); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// create makes a load balancer. Octavia's worker may fail when it meets another writer in SQLite: then there is another one.
func (o *cloud) create(ctx context.Context, name string, members []pools.CreateMemberOpts) error {
	for {
		var lb *loadbalancers.LoadBalancer
		err := o.do(ctx, func() (err error) {
			lb, err = loadbalancers.Create(ctx, o.client, loadbalancers.CreateOpts{
				Name: name, ProjectID: o.project, VipSubnetID: "11111111-1111-1111-1111-111111111111",
				Listeners: []listeners.CreateOpts{{Name: "http", Protocol: "HTTP", ProtocolPort: 80, DefaultPool: &pools.CreateOpts{
					Name: "vms", Protocol: "HTTP", LBMethod: "ROUND_ROBIN", Members: members,
				}}},
			}).Extract()
			return err
		})
		if err != nil {
			return err
		}
		status, err := o.settled(ctx, lb.ID)
		if err != nil {
			return err
		}
		if status == active {
			o.balancers = append(o.balancers, lb.ID)
			return nil
		}
		if err := o.remove(ctx, lb.ID); err != nil {
			return err
		}
	}
}

// Provisioning statuses that last.
const (
	active = "ACTIVE"
	failed = "ERROR"
	gone   = "" // there is no such load balancer
)

// settled waits until octavia has done what a load balancer was asked for, and returns its status.
func (o *cloud) settled(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience)
	defer cancel()
	for {
		lb, err := loadbalancers.Get(ctx, o.client, id).Extract()
		switch {
		case gophercloud.ResponseCodeIs(err, 404):
			return gone, nil
		case err != nil:
			return "", err
		case lb.ProvisioningStatus == active || lb.ProvisioningStatus == failed:
			return lb.ProvisioningStatus, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("load balancer %s is %s: %w", id, lb.ProvisioningStatus, ctx.Err())
		case <-time.After(tick):
		}
	}
}

// do repeats a change that is refused while an earlier one goes on.
func (o *cloud) do(ctx context.Context, change func() error) error {
	ctx, cancel := context.WithTimeout(ctx, rig.Patience)
	defer cancel()
	for {
		err := change()
		var status gophercloud.ErrUnexpectedResponseCode
		if !errors.As(err, &status) || status.Actual != 409 && !strings.Contains(string(status.Body), "database is locked") {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(tick):
		}
	}
}

// removeMember takes a member out of a load balancer's pool.
func (o *cloud) removeMember(ctx context.Context, balancer, address string) error {
	pages, err := pools.List(o.client, pools.ListOpts{LoadbalancerID: balancer}).AllPages(ctx)
	if err != nil {
		return err
	}
	all, err := pools.ExtractPools(pages)
	if err != nil || len(all) != 1 {
		return fmt.Errorf("%d pools of load balancer %s: %w", len(all), balancer, err)
	}
	pages, err = pools.ListMembers(o.client, all[0].ID, pools.ListMembersOpts{Address: address}).AllPages(ctx)
	if err != nil {
		return err
	}
	members, err := pools.ExtractMembers(pages)
	if err != nil || len(members) != 1 {
		return fmt.Errorf("%d members with address %s: %w", len(members), address, err)
	}
	if err := o.do(ctx, func() error { return pools.DeleteMember(ctx, o.client, all[0].ID, members[0].ID).ExtractErr() }); err != nil {
		return err
	}
	status, err := o.settled(ctx, balancer)
	if err == nil && status != active {
		err = fmt.Errorf("load balancer %s has status %s after a member's removal", balancer, status)
	}
	return err
}

// remove deletes a load balancer.
func (o *cloud) remove(ctx context.Context, balancer string) error {
	for {
		err := o.do(ctx, func() error {
			return loadbalancers.Delete(ctx, o.client, balancer, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
		})
		if err != nil {
			return err
		}
		if status, err := o.settled(ctx, balancer); err != nil || status == gone {
			return err
		}
	}
}

// deploy makes the Service app with so many pods. A pod that is to end answers until clients have had time to turn away from it.
func (k *kubeCloud) deploy(ctx context.Context, pods int32) error {
	if _, err := k.api.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	labels := map[string]string{"app": "app"}
	if _, err := k.api.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "app"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	noToken := false
	_, err := k.api.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: k.name}, // and so begins the name of each pod
		Spec: appsv1.DeploymentSpec{
			Replicas: &pods, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					AutomountServiceAccountToken: &noToken,
					Containers: []corev1.Container{{
						Name: "app", Image: podImage, ImagePullPolicy: corev1.PullNever,
						Env: []corev1.EnvVar{{Name: podKey, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}},
						ReadinessProbe: &corev1.Probe{
							ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(port)}},
							PeriodSeconds: 1, TimeoutSeconds: 30, FailureThreshold: 10,
						},
						Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 15}}},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

func (k *kubeCloud) scale(ctx context.Context, pods int32) error {
	scale, err := k.api.AppsV1().Deployments(namespace).GetScale(ctx, k.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	scale.Spec.Replicas = pods
	_, err = k.api.AppsV1().Deployments(namespace).UpdateScale(ctx, k.name, scale, metav1.UpdateOptions{})
	return err
}
