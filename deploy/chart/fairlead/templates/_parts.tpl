{{/* The namespace that planes keep their Lease, tokens and authority in: it is not to be chosen. */}}
{{- define "fairlead.namespace" -}}
{{- if ne .Release.Namespace "fairlead-system" }}{{ fail (printf "install Fairlead into the namespace fairlead-system, not %s (--namespace fairlead-system --create-namespace)" .Release.Namespace) }}{{ end -}}
fairlead-system
{{- end }}

{{/* What pods of a component are selected by: (component) */}}
{{- define "fairlead.selector" -}}
app.kubernetes.io/name: fairlead
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* The labels of everything: (root, component) */}}
{{- define "fairlead.labels" -}}
{{ include "fairlead.selector" (index . 1) }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{/* An image's reference: (root, name) */}}
{{- define "fairlead.image" -}}
{{- $image := (index . 0).Values.image -}}
{{- if $image.registry }}{{ $image.registry }}/{{ end }}fairlead.dev/{{ index . 1 }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}

{{/* What every pod is: (root, component, Values of the component) */}}
{{- define "fairlead.pod" -}}
{{- $root := index . 0 -}}{{- $values := index . 2 -}}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
priorityClassName: {{ $values.priorityClassName | quote }}
nodeSelector: {{ toJson $values.nodeSelector }}
tolerations: {{ toJson $values.tolerations }}
{{- end }}

{{/* The label namespace of a metric is a team's, and the operator adds that of the pod. No other label of the target may come from a pod:
     with honorLabels a machine could write series in the name of another. */}}
{{- define "fairlead.ownNamespace" }}
metricRelabelings:
- {sourceLabels: [exported_namespace], regex: (.+), targetLabel: namespace}
- {regex: exported_namespace, action: labeldrop}
{{- end }}
