package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Upstream is a Kubernetes cluster or an OpenStack cloud whose services are backends here.
// Each of its services becomes a Service with EndpointSlices in the namespace of the same name,
// so that every kind of route can name it. Only operators should have permission to create
// Upstreams: their endpoints are backends of every namespace that they are mapped to.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=up,categories=fairlead
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reachable",type=string,JSONPath=`.status.conditions[?(@.type=="Reachable")].status`
// +kubebuilder:printcolumn:name="Current",type=string,JSONPath=`.status.conditions[?(@.type=="Current")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.status=="False")].reason`
// +kubebuilder:printcolumn:name="Services",type=integer,JSONPath=`.status.replicated.services`
// +kubebuilder:printcolumn:name="Endpoints",type=integer,JSONPath=`.status.replicated.endpoints`
// +kubebuilder:printcolumn:name="Refused",type=integer,JSONPath=`.status.refused`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$')",message="the name of an Upstream begins the names of its Services: it begins with a letter, and has at most 32 lower-case letters, digits and '-'"
type Upstream struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec UpstreamSpec `json:"spec"`
	// +optional
	Status UpstreamStatus `json:"status,omitempty"`
}

// UpstreamSpec configures what is discovered, and how.
//
// +kubebuilder:validation:XValidation:rule="has(self.kubernetes) != has(self.openstack)",message="give either kubernetes or openstack"
type UpstreamSpec struct {
	// Kubernetes is a Kubernetes cluster.
	// +optional
	Kubernetes *KubernetesUpstream `json:"kubernetes,omitempty"`

	// OpenStack is an OpenStack cloud.
	// +optional
	OpenStack *OpenStackUpstream `json:"openstack,omitempty"`

	// Namespaces selects and maps the namespaces of a cluster, or the projects of a cloud.
	// +optional
	Namespaces UpstreamNamespaces `json:"namespaces,omitempty"`

	// Services selects, by label, the services of a cluster. Default: all. Load balancers of a
	// cloud have their tags as labels: tag "a=b" is label a with value b, tag "a" is label a
	// with an empty value.
	// +optional
	Services *metav1.LabelSelector `json:"services,omitempty"`

	// Addresses are the networks in which endpoints must be. Endpoints elsewhere are refused.
	// Default: every address that the namespace may have as an endpoint.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=43
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be a network such as 10.0.0.0/8 or 2001:db8::/32"
	Addresses []string `json:"addresses,omitempty"`

	// RequestsPerSecond bounds requests to the API of the upstream, on average.
	// +optional
	// +kubebuilder:default=20
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000
	RequestsPerSecond int32 `json:"requestsPerSecond,omitempty"`

	// Limits bound what the upstream may add here. What is beyond is left out, and the status
	// names it.
	// +optional
	// +kubebuilder:default={}
	Limits UpstreamLimits `json:"limits,omitempty"`

	// Loss configures the reaction to an upstream that is away, or whose lists are suddenly
	// shorter.
	// +optional
	// +kubebuilder:default={}
	Loss UpstreamLoss `json:"loss,omitempty"`

	// Naming of Services. Fairlead: UPSTREAM-SERVICE, and names of more than 63 characters end
	// with a hash. Gimbal: the names and labels that Gimbal's discoverers give, and the objects
	// that they have created for the backend of the Upstream's name are taken over.
	// +optional
	// +kubebuilder:default=Fairlead
	Naming UpstreamNaming `json:"naming,omitempty"`
}

// KubernetesUpstream is a Kubernetes cluster.
type KubernetesUpstream struct {
	// Secret is the name of a Secret in the planes' namespace (fairlead-system) whose key
	// "kubeconfig" holds a kubeconfig with inline credentials. Exec plugins, file paths,
	// proxies and insecure-skip-tls-verify are refused unless the plane's --upstream-allow
	// names them.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret"`

	// Context of the kubeconfig. Default: its current context.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Context string `json:"context,omitempty"`
}

// OpenStackUpstream is an OpenStack cloud.
type OpenStackUpstream struct {
	// Secret is the name of a Secret in the planes' namespace (fairlead-system). Its key
	// "clouds.yaml" holds the credentials, of a user or an application credential; "ca.crt"
	// holds the authorities that verify the cloud's APIs, and "notifications" the URL of the
	// RabbitMQ with the notifications of Octavia, for example
	// amqps://user:password@rabbit.example:5671/.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret"`

	// Cloud is the name of the cloud in clouds.yaml. Default: the only one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Cloud string `json:"cloud,omitempty"`

	// API of the load balancers. Octavia: the load-balancer service. LBaaSv2: the load balancers
	// of Neutron, without update times, so that every poll reads all of them.
	// +optional
	// +kubebuilder:default=Octavia
	API OpenStackAPI `json:"api,omitempty"`

	// Projects by ID or name. Default: all that the credentials may list.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=64
	Projects []string `json:"projects,omitempty"`

	// PollInterval is how often the load balancers that changed last are read.
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+$') && duration(self) >= duration('200ms') && duration(self) <= duration('1h')",message="must be a duration from 200ms to 1h, such as 1s"
	PollInterval *metav1.Duration `json:"pollInterval,omitempty"`

	// SweepInterval is how often the IDs of all load balancers are read, which finds deleted
	// ones.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be a duration from 1s to 24h, such as 30s"
	SweepInterval *metav1.Duration `json:"sweepInterval,omitempty"`

	// NotificationTopic is the topic of Octavia's notifications, if the Secret has their URL.
	// +optional
	// +kubebuilder:default=notifications
	// +kubebuilder:validation:MaxLength=128
	NotificationTopic string `json:"notificationTopic,omitempty"`
}

// OpenStackAPI is an API of load balancers.
//
// +kubebuilder:validation:Enum=Octavia;LBaaSv2
type OpenStackAPI string

// The APIs. The zero value is Octavia.
const (
	OpenStackOctavia OpenStackAPI = "Octavia"
	OpenStackLBaaSv2 OpenStackAPI = "LBaaSv2"
)

// UpstreamNamespaces selects and maps namespaces.
type UpstreamNamespaces struct {
	// Include names the namespaces, or the projects by ID or name; "*" stands for any
	// characters. Default: all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	Include []string `json:"include,omitempty"`

	// Exclude takes namespaces out again. The namespaces kube-system, kube-public and
	// kube-node-lease of a cluster are out unless include names them.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:MaxLength=253
	Exclude []string `json:"exclude,omitempty"`

	// Map gives namespaces another name here. Namespaces that it does not name keep theirs.
	// +optional
	// +listType=map
	// +listMapKey=from
	// +kubebuilder:validation:MaxItems=4096
	Map []NamespaceMapping `json:"map,omitempty"`

	// ProjectsBy says which name of a project is its namespace here.
	// +optional
	// +kubebuilder:default=Name
	ProjectsBy ProjectNaming `json:"projectsBy,omitempty"`
}

// NamespaceMapping maps a namespace of the upstream to one here.
type NamespaceMapping struct {
	// From is the namespace in the upstream, or the project by ID or name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from"`
	// To is the namespace here.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	To string `json:"to"`
}

// ProjectNaming is a name of projects.
//
// +kubebuilder:validation:Enum=Name;ID
type ProjectNaming string

// The names of projects. The zero value is their Name, in lower case.
const (
	ProjectsByName ProjectNaming = "Name"
	ProjectsByID   ProjectNaming = "ID"
)

// UpstreamLimits bound what an upstream may add.
type UpstreamLimits struct {
	// Services is the largest number of Services.
	// +optional
	// +kubebuilder:default=10000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000
	Services int32 `json:"services,omitempty"`
	// Endpoints is the largest number of endpoints of all Services.
	// +optional
	// +kubebuilder:default=100000
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	Endpoints int32 `json:"endpoints,omitempty"`
	// AnswerMiB is the largest size of one answer of the API, in MiB.
	// +optional
	// +kubebuilder:default=256
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	AnswerMiB int32 `json:"answerMiB,omitempty"`
}

// UpstreamLoss configures the reaction to losses.
type UpstreamLoss struct {
	// Threshold is the share of services or of endpoints, in percent, that may be gone from a
	// list at once. If more are gone, all of them stay until an operator confirms the loss
	// (`fairlead upstream confirm`) or keepFor is over. 100 confirms every loss.
	// +optional
	// +kubebuilder:default=50
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Threshold *int32 `json:"threshold,omitempty"`

	// KeepFor is how long endpoints stay after the upstream is away, or after a loss beyond the
	// threshold. 0s means until an operator confirms the loss.
	// +optional
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$')",message="must be a duration, such as 0s, 30m or 24h"
	KeepFor *metav1.Duration `json:"keepFor,omitempty"`

	// ReturnTime is how long the changes of an upstream that was away are spread over, so that
	// one that is half started does not move everything at once. Additions are not delayed.
	// +optional
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]*[.]?[0-9]+(ns|us|ms|s|m|h))+)$') && duration(self) <= duration('1h')",message="must be a duration from 0s to 1h, such as 10s"
	ReturnTime *metav1.Duration `json:"returnTime,omitempty"`
}

// UpstreamNaming is a way to name Services.
//
// +kubebuilder:validation:Enum=Fairlead;Gimbal
type UpstreamNaming string

// The ways to name Services. The zero value is Fairlead.
const (
	NamingFairlead UpstreamNaming = "Fairlead"
	NamingGimbal   UpstreamNaming = "Gimbal"
)

// UpstreamStatus is the state of an upstream that the plane last wrote: conditions on
// transitions, counts at most every 30 seconds. `fairlead upstreams` shows the current state.
type UpstreamStatus struct {
	// Type is Kubernetes or OpenStack.
	// +optional
	Type string `json:"type,omitempty"`

	// Seen counts what the upstream has and the spec selects.
	// +optional
	Seen UpstreamCounts `json:"seen,omitempty"`
	// Replicated counts what is in effect here.
	// +optional
	Replicated UpstreamCounts `json:"replicated,omitempty"`
	// Held counts what is in effect here although the upstream does not list it any more.
	// +optional
	Held UpstreamCounts `json:"held,omitempty"`
	// Refused is the number of services, ports and endpoints that are left out.
	// +optional
	Refused int32 `json:"refused,omitempty"`
	// Refusals are the first of them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Refusals []UpstreamRefusal `json:"refusals,omitempty"`

	// LastContact is when an upstream that is not reachable last answered.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`
	// LastSweep is when a complete list of an upstream that is not current was last read.
	// +optional
	LastSweep *metav1.Time `json:"lastSweep,omitempty"`

	// Conditions of the upstream: Accepted (spec and credentials are usable), Reachable (its API
	// answers), Current (what is in effect is what the upstream has) and Stored (the API here
	// takes what is discovered).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UpstreamCounts are numbers of services and endpoints.
type UpstreamCounts struct {
	// +optional
	Services int32 `json:"services"`
	// +optional
	Endpoints int32 `json:"endpoints"`
}

// UpstreamRefusal says what is left out, and why.
type UpstreamRefusal struct {
	// Object of the upstream, such as "Service team01/app" or "load balancer 5c1e…".
	Object string `json:"object"`
	// Reason in one word.
	Reason string `json:"reason"`
	// Message says where the fault is and what to do.
	Message string `json:"message"`
}

// UpstreamList is a list of Upstreams.
//
// +kubebuilder:object:root=true
type UpstreamList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Upstream `json:"items"`
}

func init() { register(&Upstream{}, &UpstreamList{}) }

// Conditions of an Upstream, besides Accepted.
const (
	// ConditionReachable is true while the upstream's API answers.
	ConditionReachable = "Reachable"
	// ConditionCurrent is true while what is in effect here is what the upstream has.
	ConditionCurrent = "Current"
	// ConditionStored is true while the API of this plane takes what is discovered.
	ConditionStored = "Stored"
)

// Reasons of an Upstream's conditions, in addition to ReasonAccepted and ReasonInvalid.
const (
	// ReasonSecretMissing says that the Secret, or a key of it, does not exist.
	ReasonSecretMissing = "SecretMissing"
	// ReasonCredentials says that the credentials cannot be used as they are written.
	ReasonCredentials = "InvalidCredentials"
	// ReasonOwnAPI says that the upstream is the API of this plane.
	ReasonOwnAPI = "OwnAPI"

	// ReasonAnswers says that the upstream's API answers.
	ReasonAnswers = "Answers"
	// ReasonUnauthorized says that the API refuses the credentials (401).
	ReasonUnauthorized = "Unauthorized"
	// ReasonForbidden says that the credentials lack a right (403).
	ReasonForbidden = "Forbidden"
	// ReasonCertificate says that the API's certificate is not verified by the given authorities.
	ReasonCertificate = "Certificate"
	// ReasonThrottled says that the API asks for fewer requests (429).
	ReasonThrottled = "Throttled"
	// ReasonServerError says that the API answers with an error of its own (5xx).
	ReasonServerError = "ServerError"
	// ReasonTimeout says that the API does not answer in time, or too slowly.
	ReasonTimeout = "Timeout"
	// ReasonUnreachable says that no connection to the API can be opened.
	ReasonUnreachable = "Unreachable"
	// ReasonBadAnswer says that an answer is too large, incomplete, or of another form.
	ReasonBadAnswer = "BadAnswer"
	// ReasonNotTried says that the API was not asked yet.
	ReasonNotTried = "NotTried"

	// ReasonCurrent says that nothing is missing.
	ReasonCurrent = "Current"
	// ReasonSyncing says that a complete list was not read yet; what is stored is in effect.
	ReasonSyncing = "Syncing"
	// ReasonStale says that the upstream is away; what was last read is in effect.
	ReasonStale = "Stale"
	// ReasonLossHeld says that more is gone than the threshold allows; it stays in effect.
	ReasonLossHeld = "LossHeld"
	// ReasonReturning says that the changes of an upstream that was away come into effect bit by bit.
	ReasonReturning = "Returning"
	// ReasonOverLimit says that the upstream has more than spec.limits allow.
	ReasonOverLimit = "OverLimit"

	// ReasonStored says that no write fails.
	ReasonStored = "Stored"
	// ReasonWriteFailed says that objects cannot be written, for example because of a quota or a webhook.
	ReasonWriteFailed = "WriteFailed"
)

// Labels and annotations of discovered objects.
const (
	// LabelUpstream names the Upstream of a discovered Service or EndpointSlice.
	LabelUpstream = "fairlead.dev/upstream"
	// LabelLoadBalancerID and LabelLoadBalancerName tell which load balancer of a cloud a Service is.
	LabelLoadBalancerID   = "fairlead.dev/load-balancer-id"
	LabelLoadBalancerName = "fairlead.dev/load-balancer-name"
	// AnnotationUpstreamObject names the object in the upstream, such as "Service team01/app".
	AnnotationUpstreamObject = "fairlead.dev/upstream-object"
	// AnnotationUpstreamService is the key of the service in the upstream: its namespace or
	// project, "/", and its name.
	AnnotationUpstreamService = "fairlead.dev/upstream-service"
	// AnnotationWeights gives the endpoints of an EndpointSlice weights: "10.0.0.1=5,10.0.0.2=3".
	// Endpoints that it does not name have weight 1.
	AnnotationWeights = "fairlead.dev/weights"
	// AnnotationBackups names the endpoints of an EndpointSlice that take requests and
	// connections only while no other backend of the Service's port is able to:
	// "10.0.0.9,10.0.0.10".
	AnnotationBackups = "fairlead.dev/backups"
	// AnnotationConfirmedAt of an Upstream confirms the losses up to a time (RFC 3339).
	AnnotationConfirmedAt = "fairlead.dev/confirmed-at"
)

// SliceManager is the value of the label endpointslice.kubernetes.io/managed-by of discovered
// EndpointSlices.
const SliceManager = "upstream.fairlead.dev"
