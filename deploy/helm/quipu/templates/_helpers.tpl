{{/* Names. */}}
{{- define "quipu.fullname" -}}
{{- if contains "quipu" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-quipu" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "quipu.headless" -}}{{ include "quipu.fullname" . }}-nodes{{- end }}

{{- define "quipu.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "quipu.selector" -}}
app.kubernetes.io/name: quipu
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "quipu.labels" -}}
{{ include "quipu.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "quipu.secret" -}}
{{ .Values.peerSecret.existingSecret | default (printf "%s-peer" (include "quipu.fullname" .)) }}
{{- end }}

{{/* The domain under which every pod has a name of its own. */}}
{{- define "quipu.domain" -}}
{{ include "quipu.headless" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{/* Number of the first node of a chain: (list root, place in the list, chain). */}}
{{- define "quipu.idBase" -}}
{{- $place := index . 1 }}{{ $chain := index . 2 }}
{{- if hasKey $chain "idBase" }}{{ $chain.idBase }}{{ else }}{{ add 1 (mul 1000 $place) }}{{ end }}
{{- end }}

{{/* The first nodes over all chains: ID@HOST:PORT, with commas. */}}
{{- define "quipu.voters" -}}
{{- $root := . }}{{ $voters := list }}
{{- range $place, $chain := .Values.chains }}
{{- $base := include "quipu.idBase" (list $root $place $chain) | int }}
{{- range $number := until ($chain.nodes | int) }}
{{- if lt (len $voters) ($root.Values.voters | int) }}
{{- $host := printf "%s-%s-%d.%s" (include "quipu.fullname" $root) $chain.name $number (include "quipu.domain" $root) }}
{{- $voters = append $voters (printf "%d@%s:%d" (add $base $number) $host ($root.Values.ports.peer | int)) }}
{{- end }}{{ end }}{{ end }}
{{- if lt (len $voters) (.Values.voters | int) }}
{{- fail (printf "voters is %d, but all chains together have %d nodes" (.Values.voters | int) (len $voters)) }}
{{- end }}
{{- join "," $voters }}
{{- end }}

{{/* Nodes of one chain apart from each other: (list root, chain). */}}
{{- define "quipu.affinity" -}}
{{- $root := index . 0 }}{{ $chain := index . 1 }}
{{- $term := dict "topologyKey" $root.Values.antiAffinity.topologyKey "labelSelector" (dict "matchLabels" (merge (dict "quipu/chain" $chain.name) (include "quipu.selector" $root | fromYaml))) }}
{{- if eq $root.Values.antiAffinity.type "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution: {{- list $term | toYaml | nindent 6 }}
{{- else if eq $root.Values.antiAffinity.type "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution: {{- list (dict "weight" 100 "podAffinityTerm" $term) | toYaml | nindent 6 }}
{{- end }}
{{- end }}
