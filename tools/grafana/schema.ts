// The types that dashboards must have: those of Grafana, with the values of their enumerations as JSON has them.
import type {
  Dashboard,
  GraphFieldConfig,
  OptionsWithLegend,
  OptionsWithTooltip,
  Panel,
  RowPanel,
  VariableModel,
} from '@grafana/schema';

type Json<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T : T extends (infer U)[] ? Json<U>[] : { [K in keyof T]: Json<T[K]> };

type Lines = Omit<Json<Panel>, 'type' | 'options' | 'fieldConfig'> & {
  type: 'timeseries';
  options: Json<OptionsWithLegend & OptionsWithTooltip>;
  fieldConfig: {
    defaults: Omit<Json<NonNullable<Panel['fieldConfig']>['defaults']>, 'custom'> & { custom: Json<GraphFieldConfig> };
    overrides: Json<NonNullable<Panel['fieldConfig']>['overrides']>;
  };
};
type Value = Json<Panel> & { type: 'stat' };
type Heading = Json<RowPanel>;

export type Page = Omit<Json<Dashboard>, 'panels' | 'templating'> & {
  panels: (Lines | Value | Heading)[];
  templating: { list: Json<VariableModel>[] };
};
