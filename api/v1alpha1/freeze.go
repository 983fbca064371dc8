package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// FreezeName is the name of the only Freeze that counts.
const FreezeName = "routing"

// Freeze holds back every change of routing while it exists: listeners, hosts, routes,
// groups of backends and their settings stay at the edges as they were. Endpoints, health,
// certificates, VIPs and machines go on. Whoever may create it may stop, and turn back,
// everybody's routes: it is the operators'.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=freezes,singular=freeze,categories=fairlead
// +kubebuilder:printcolumn:name="As of",type=string,JSONPath=`.spec.asOf`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'routing'",message="there is one Freeze: name it routing"
type Freeze struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec FreezeSpec `json:"spec,omitempty"`
}

// FreezeSpec says why, and which state holds.
type FreezeSpec struct {
	// Reason is shown to everybody whose change is held back.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Reason string `json:"reason,omitempty"`
	// AsOf turns routing back to what the edges had at this time. Unset: as it was when the
	// Freeze was created. A plane knows the states since it began, and the last 4,096.
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
