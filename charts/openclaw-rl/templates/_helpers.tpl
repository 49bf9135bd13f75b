{{- define "openclaw.labels" -}}
app.kubernetes.io/name: openclaw-rl
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "openclaw.selector" -}}
app.kubernetes.io/name: openclaw-rl
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "openclaw.serviceAccount" -}}
{{ .Values.serviceAccount.name | default .Release.Name }}
{{- end }}

{{- /* Reference of one image: (dict "root" $ "component" "gateway") */ -}}
{{- define "openclaw.image" -}}
{{- $images := .root.Values.images -}}
{{- $full := index $images .component -}}
{{- if $full -}}
{{ $full }}
{{- else -}}
{{- $registry := ternary (printf "%s/" $images.registry) "" (ne $images.registry "") -}}
{{ printf "%sopenclaw-%s:%s" $registry .component ($images.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{- /* What the operator may do in a namespace it works in. No wildcards; Secrets only by name, never listed. */ -}}
{{- define "openclaw.rules" -}}
- apiGroups: [openclawrl.io]
  resources: [openclawtrainings]
  verbs: [get, list, watch, patch]
- apiGroups: [openclawrl.io]
  resources: [openclawtrainings/status]
  verbs: [get, patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [leaderworkerset.x-k8s.io]
  resources: [leaderworkersets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, configmaps, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings]
  verbs: [get, list, watch, create, patch, delete]
# Leases of a training; get, list, watch and patch are also what the operator grants to gateway and trainer.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch]
# Granted to gateways; the operator may grant only what it holds.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
{{- end }}
