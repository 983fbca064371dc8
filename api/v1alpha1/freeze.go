package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FreezeName is the name of the only Freeze that has an effect.
const FreezeName = "routing"

// Freeze holds back every change of routing while it exists: listeners, hosts, routes, groups
// of backends and their settings stay as they were. Changes of endpoints, health,
// certificates, VIPs and machines still pass. Only operators should have permission to create
// it: it can freeze or roll back every route.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=freezes,singular=freeze,categories=fairlead
// +kubebuilder:printcolumn:name="As of",type=string,JSONPath=`.spec.asOf`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'routing'",message="the only Freeze is named routing"
type Freeze struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec FreezeSpec `json:"spec,omitempty"`
}

// FreezeSpec holds the reason of a freeze and the time of the state that the freeze keeps.
type FreezeSpec struct {
	// Reason is shown at every resource whose change is held back.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// AsOf rolls routing back to its state at this time. Default: the time at which the Freeze
	// was created. A plane knows the states since its own start, and at most the last 4,096.
	// +optional
	AsOf *metav1.MicroTime `json:"asOf,omitempty"`
}

// FreezeList is a list of Freezes.
//
// +kubebuilder:object:root=true
type FreezeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Freeze `json:"items"`
}

func init() { register(&Freeze{}, &FreezeList{}) }
