(window.rocmAudit=window.rocmAudit||{})["search"]=["search-1"];
