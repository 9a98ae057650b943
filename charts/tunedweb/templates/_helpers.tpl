{{/* Labels of everything in this chart; takes (dict "root" $ "component" "…"). */}}
{{- define "tunedweb.labels" -}}
{{ include "tunedweb.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: tunedweb
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* Labels that select pods. They never change: a selector cannot be changed after it was made. */}}
{{- define "tunedweb.selector" -}}
app.kubernetes.io/name: tunedweb
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* What no container of this chart ever has, the agent included. */}}
{{- define "tunedweb.unprivileged" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{/* The pod template's security context of everything that is not the agent. */}}
{{- define "tunedweb.nonRoot" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The pull secrets of a pod; takes their names. */}}
{{- define "tunedweb.pullSecrets" -}}
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}

{{/* How long a drain may take: what the operator waits for the nodes, and a minute for all that is around it. */}}
{{- define "tunedweb.drainSeconds" -}}
{{ add .Values.restoreTimeoutSeconds 60 }}
{{- end }}

{{/* Annotations of the pre-delete hook; takes the weight, the lowest of which goes first. */}}
{{- define "tunedweb.drainHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
